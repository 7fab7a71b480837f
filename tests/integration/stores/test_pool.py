import asyncio
import gc
import os
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from azure.core.exceptions import AzureError

from durable_retry.settings.storage_account import STORAGE
from durable_retry.storage import clients as storage_clients
from durable_retry.storage import queues, tables
from durable_retry.storage.clients import run_in_pool
from durable_retry_console.index.store import OperationList, buckets
from durable_retry_console.metrics.counts import from_text
from durable_retry_console.metrics.minutes import TABLE as METRICS
from tests.support.azurite import Storage
from tests.support.commands import ran
from tests.support.polling import until

MANY = 200


@dataclass
class SlowStorage:
    """Storage that answers nothing until it is let go.

    Attributes:
        go: Set to let it answer.
        begun: Calls that reached it.
    """

    go: threading.Event
    begun: int = 0

    def answer(self, *_: object, **__: object) -> None:
        self.begun += 1
        self.go.wait(30)


@pytest.fixture
async def slow(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SlowStorage]:
    storage = SlowStorage(threading.Event())
    monkeypatch.setattr(tables, "with_table", storage.answer)
    monkeypatch.setattr(queues, "_send_message", storage.answer)
    monkeypatch.setattr(storage_clients, "WAIT_SECONDS", 0.05)
    yield storage
    storage.go.set()


async def until_every_thread_is_busy(slow: SlowStorage) -> None:
    await until(lambda: slow.begun >= storage_clients._THREADS)


async def test_slow_storage_delays_no_name_resolution(slow: SlowStorage) -> None:
    calls = [asyncio.create_task(tables.read("Any", "p", str(number))) for number in range(MANY)]
    calls += [asyncio.create_task(queues.send_message("any", str(number))) for number in range(MANY)]
    async with asyncio.timeout(60):
        await until_every_thread_is_busy(slow)
        assert await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    slow.go.set()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_beyond_the_threads_a_call_fails_as_storage_that_is_away(slow: SlowStorage) -> None:
    calls = [asyncio.create_task(tables.read("Any", "p", str(number))) for number in range(MANY)]
    refused = calls[storage_clients._THREADS :]
    async with asyncio.timeout(60):
        assert all(
            isinstance(error, AzureError) for error in await asyncio.gather(*refused, return_exceptions=True)
        )
    assert slow.begun == storage_clients._THREADS
    slow.go.set()
    await asyncio.gather(*calls[: storage_clients._THREADS])


async def test_a_cancelled_call_holds_its_thread_until_it_ends(slow: SlowStorage) -> None:
    calls = [asyncio.create_task(run_in_pool(slow.answer)) for _ in range(storage_clients._THREADS)]
    await until_every_thread_is_busy(slow)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    with pytest.raises(AzureError):
        await run_in_pool(slow.answer)
    slow.go.set()
    async with asyncio.timeout(60):
        while True:
            try:
                assert await run_in_pool(lambda: "free again") == "free again"
            except AzureError:
                continue
            break


async def test_a_cancelled_call_that_fails_is_no_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    go = threading.Event()

    def fail() -> None:
        go.wait(30)
        raise LookupError

    call = asyncio.create_task(run_in_pool(fail))
    await until(lambda: storage_clients._free_threads.get()._value < storage_clients._THREADS)
    call.cancel()
    await asyncio.wait([call])
    go.set()
    await until(lambda: storage_clients._free_threads.get()._value == storage_clients._THREADS)
    gc.collect()
    assert "never retrieved" not in caplog.text


AT_THE_END = """
from datetime import UTC, datetime
from durable_retry_console.index.store import OperationEntry, OperationList
from durable_retry_console.index import notes as operation_notes
from durable_retry_console.metrics.minutes import MINUTES

MINUTES.begin()
for name in ("payments", "mail"):
    MINUTES.count(name, {"started": 1})
given = dict(key="k", dependency="mail", handler=None, source="http", correlation_id="c")
made = (OperationEntry(operation_id=f"op-{n}", created_at=datetime.now(UTC), **given) for n in (1, 2))

operation_notes.WRITER.begin()
for entry in made:
    operation_notes.WRITER.note(OperationList.ALL, entry)
"""


async def test_a_process_that_ends_writes_what_it_holds_without_a_complaint(storage: Storage) -> None:
    ended = ran(
        [sys.executable, "-c", AT_THE_END],
        env={**os.environ, STORAGE: storage.connection_string},
        timeout=300,
        check=True,
    )
    assert ended.stderr == ""
    page = await tables.rows_between(METRICS, f"{datetime.now(UTC):%Y-%m-%d}", after="1|", before="1|~")
    assert {name for row in page.rows for name in from_text(row["counts_0"])} >= {"payments", "mail"}
    found = [entry.operation_id async for _, _, some in buckets([OperationList.ALL], None) for entry in some]
    assert {"op-1", "op-2"} <= set(found)
