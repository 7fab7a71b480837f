"""Opens the store's file."""

import sqlite3
from pathlib import Path

from onebox.hub.errors import StoreTooNew
from onebox.hub.store.sql import FROM_FORM_1, SCHEMA

_FORM = 2  # of the schema; 0 is an empty file
_CACHED_STATEMENTS = 256
_CHECKPOINT_PAGES = 4000  # 16 MB of log: fewer, larger copies into the main file


def open_writer(path: Path) -> sqlite3.Connection:
    """Open the one connection that writes; create what is missing, and rewrite a store of an earlier form.

    Commits are durable when they return (`synchronous = FULL`). The connection may be used from a second
    thread, by one at a time.

    Raises:
        StoreTooNew: The file is of a later form.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    db = _connect(path)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        _create(db, path)
        # A lock that another process holds must not stop the event loop: the writer tries again by itself.
        db.execute("PRAGMA busy_timeout = 0")
    except BaseException:
        db.close()
        raise
    return db


def _create(db: sqlite3.Connection, path: Path) -> None:
    (form,) = db.execute("PRAGMA user_version").fetchone()
    if form > _FORM:
        raise StoreTooNew(f"{path} was written by a later version of onebox (form {form}, not {_FORM})")
    script = FROM_FORM_1 if form == 1 else SCHEMA
    db.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {_FORM};\nCOMMIT;")


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that sees what is committed and cannot write."""
    db = _connect(path)
    db.execute("PRAGMA query_only = ON")
    return db


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=_CACHED_STATEMENTS
    )
