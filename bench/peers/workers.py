"""The peers' apps: `python -m bench.peers.workers NAME ADDRESS`, run by the peers' own Python.

Each does the same job with its own means: call a path of the flaky target, and call again 0.2 s after each
failure, at most 6 times, unless the environment says otherwise. TARGET_URL in it says where the target is. A
worker prints "ready" once it serves; ADDRESS is a port, or for DBOS the URL of its database.
"""

import asyncio
import functools
import http.client
import logging
import os
import sys
import threading
from collections.abc import Generator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import aiohttp

BACKOFF = timedelta(seconds=float(os.environ.get("DELAY_SECONDS", "0.2")))
FACTOR = float(os.environ.get("DELAY_FACTOR", "1"))
LONGEST_BACKOFF = timedelta(seconds=float(os.environ.get("LONGEST_DELAY_SECONDS", "0.2")))
MAX_ATTEMPTS = int(os.environ.get("MAX_ATTEMPTS", "6"))
AT_ONCE = 32
OK = 200
EVERY_REQUEST = 10**9
QUEUE_POLL_SECONDS = 0.1  # DBOS looks once a second by default, which would make each submission wait
OLDEST_SQLITE = (3, 42)

_THREAD = threading.local()


class FlakyError(Exception):
    """The target did not answer 200. `retry_after` is the wait in seconds that it asked for, or None."""

    def __init__(self, message: str, retry_after: str | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@functools.cache
def session() -> aiohttp.ClientSession:
    """Returns the one HTTP client of the event loop."""
    return aiohttp.ClientSession(os.environ["TARGET_URL"], connector=aiohttp.TCPConnector(limit=0))


async def call(path: str) -> Any:
    """Calls the target once from an event loop.

    Raises:
        FlakyError: It did not answer 200.
    """
    async with session().get(path) as answer:
        body = await answer.json()
        if answer.status != OK:
            raise FlakyError(str(answer.status), answer.headers.get("Retry-After"))
        return body


def call_in_thread(path: str) -> str:
    """Calls the target once from a worker thread, on a connection that the thread keeps.

    Raises:
        FlakyError: It did not answer 200.
    """
    connection: http.client.HTTPConnection | None = getattr(_THREAD, "connection", None)
    if connection is None:
        connection = http.client.HTTPConnection(urlsplit(os.environ["TARGET_URL"]).netloc, timeout=30)
        _THREAD.connection = connection
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read().decode()
    if answer.status != OK:
        raise FlakyError(str(answer.status))
    return body


async def plain(port: str) -> None:
    """The floor: tasks of one event loop; nothing is durable."""
    lanes = asyncio.Semaphore(AT_ONCE)
    tasks: dict[str, asyncio.Task[None]] = {}

    async def job(path: str) -> None:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                async with lanes:
                    await call(path)
            except FlakyError:
                if attempt == MAX_ATTEMPTS:
                    raise
                await asyncio.sleep(BACKOFF.total_seconds())
            else:
                return

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := (await reader.readline()).decode().split():
            verb, key, *path = line
            if verb == "submit":
                tasks[key] = asyncio.create_task(job(*path))
            else:
                await tasks[key]
            writer.write(b"ok\n")

    server = await asyncio.start_server(serve, "127.0.0.1", int(port))
    print("ready", flush=True)
    await server.serve_forever()


async def dbos(database_url: str) -> None:
    """DBOS: a workflow with one step that the library retries; jobs arrive on its queue in the database."""
    use_new_sqlite()
    from dbos import DBOS

    DBOS(config={"name": "peer", "system_database_url": database_url, "log_level": "ERROR"})
    step = DBOS.step(
        retries_allowed=True,
        interval_seconds=BACKOFF.total_seconds(),
        max_attempts=MAX_ATTEMPTS,
        backoff_rate=FACTOR,
    )(call)

    async def job(path: str) -> Any:
        return await step(path)

    DBOS.workflow(name="job")(job)
    DBOS.launch()
    await DBOS.register_queue_async("jobs", polling_interval_sec=QUEUE_POLL_SECONDS)
    print("ready", flush=True)
    await asyncio.Event().wait()


def use_new_sqlite() -> None:
    """Puts PyPI's build in the place of a standard library's SQLite that is too old for DBOS."""
    import sqlite3

    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        import pysqlite3
        import pysqlite3.dbapi2

        sys.modules |= {"sqlite3": pysqlite3, "sqlite3.dbapi2": pysqlite3.dbapi2}


async def restate(port: str) -> None:
    """Restate: a service with one step that the server retries."""
    import restate
    from hypercorn.asyncio import serve
    from hypercorn.config import Config
    from restate.exceptions import RetryableError

    options = restate.RunOptions(
        max_attempts=MAX_ATTEMPTS,
        initial_retry_interval=BACKOFF,
        max_retry_interval=LONGEST_BACKOFF,
        retry_interval_factor=FACTOR,
    )
    service = restate.Service("Jobs")

    async def step(path: str) -> Any:
        try:
            return await call(path)
        except FlakyError as error:
            if error.retry_after is None:
                raise
            raise RetryableError(str(error), retry_after=timedelta(seconds=int(error.retry_after))) from error

    async def job(context: restate.Context, path: str) -> Any:
        return await context.run_typed("call", step, options, path)

    service.handler()(job)
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    # Hypercorn ends an HTTP/2 connection after 1,000 requests, and Restate repeats the steps that it cut.
    config.keep_alive_max_requests = EVERY_REQUEST
    print("ready", flush=True)
    await serve(restate.app([service]), config)


def durabletask_backend(port: str) -> None:
    """Microsoft's in-memory backend."""
    from durabletask.testing import create_test_backend

    create_test_backend(port=int(port)).start()
    print("ready", flush=True)
    threading.Event().wait()


def durabletask_worker(port: str) -> None:
    """durabletask: an orchestrator that calls an activity with the SDK's `RetryPolicy`."""
    from durabletask import task, worker

    policy = task.RetryPolicy(
        first_retry_interval=BACKOFF,
        max_number_of_attempts=MAX_ATTEMPTS,
        backoff_coefficient=FACTOR,
        max_retry_interval=LONGEST_BACKOFF,
    )

    def activity(_context: task.ActivityContext, path: str) -> str:
        return call_in_thread(path)

    def job(context: task.OrchestrationContext, path: str) -> Generator[task.Task[Any], Any, Any]:
        return (yield context.call_activity(activity, input=path, retry_policy=policy))

    quiet = logging.getLogger("quiet")
    quiet.setLevel(logging.WARNING)  # The default logger prints lines for each work item.
    options = worker.ConcurrencyOptions(
        maximum_concurrent_activity_work_items=AT_ONCE,
        maximum_concurrent_orchestration_work_items=AT_ONCE,
        maximum_thread_pool_workers=AT_ONCE,
    )
    served: Any = worker.TaskHubGrpcWorker(
        host_address=f"127.0.0.1:{port}", logger=quiet, concurrency_options=options
    )
    served.add_orchestrator(job)
    served.add_activity(activity)
    served.start()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["plain", address]:
            asyncio.run(plain(address))
        case ["dbos", address]:
            asyncio.run(dbos(address))
        case ["restate", address]:
            asyncio.run(restate(address))
        case ["durabletask-backend", address]:
            durabletask_backend(address)
        case ["durabletask-worker", address]:
            durabletask_worker(address)
