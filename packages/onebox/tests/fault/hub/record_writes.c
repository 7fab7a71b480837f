/* Preloaded into a life of the hub: records each write, truncation and sync of the files hub.db and hub.db-wal, in their
   order, so that a test can tell what a power cut would have left. It dies after as many records as DIE_AFTER says, where
   that is set: an instant would come too early or too late on a busy machine. Records go to the file that RECORD names:

   char kind ('W', 'T', 'S'), char is_wal, int64 offset (or length, for T), int64 size, then so many bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int record_fd = -2;
static int left = -1;

/* 0 = the database, 1 = its log, -1 = any other file. */
static int which(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return -1;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    if (name == NULL) return -1;
    if (strcmp(name, "/hub.db") == 0) return 0;
    return strcmp(name, "/hub.db-wal") == 0 ? 1 : -1;
}

static void record(char kind, int file, int64_t offset, const void *bytes, int64_t size) {
    if (file < 0) return;
    char head[18] = {kind, (char)file};
    memcpy(head + 2, &offset, 8);
    memcpy(head + 10, &size, 8);
    struct iovec parts[2] = {{head, sizeof head}, {(void *)bytes, (size_t)size}};
    pthread_mutex_lock(&lock);
    if (record_fd == -2) {
        record_fd = open(getenv("RECORD"), O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (getenv("DIE_AFTER") != NULL) left = atoi(getenv("DIE_AFTER"));
    }
    if (writev(record_fd, parts, size > 0 ? 2 : 1) != (ssize_t)sizeof head + size) abort();
    if (left > 0 && --left == 0) raise(SIGKILL);
    pthread_mutex_unlock(&lock);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (real == NULL) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    ssize_t written = real(fd, bytes, size, offset);
    if (written > 0) record('W', which(fd), offset, bytes, written);
    return written;
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) { return pwrite64(fd, bytes, size, offset); }

ssize_t write(int fd, const void *bytes, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    int file = which(fd);
    off_t offset = file < 0 ? 0 : lseek(fd, 0, SEEK_CUR);
    ssize_t written = real(fd, bytes, size);
    if (written > 0) record('W', file, offset, bytes, written);
    return written;
}

int ftruncate64(int fd, off64_t length) {
    REAL(int, "ftruncate64", int, off64_t);
    int failed = real(fd, length);
    if (!failed) record('T', which(fd), length, NULL, 0);
    return failed;
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

/* A sync that has returned is recorded before the caller goes on: what it acknowledges comes later. */
int fsync(int fd) {
    REAL(int, "fsync", int);
    int failed = real(fd);
    if (!failed) record('S', which(fd), 0, NULL, 0);
    return failed;
}

int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    int failed = real(fd);
    if (!failed) record('S', which(fd), 0, NULL, 0);
    return failed;
}
