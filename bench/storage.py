"""Requests to storage: what dead letters and events cost, and lists with 100,000 of them.

Azurite runs in memory: it fills fast, and what a benchmark fills is gone with it.
"""

import asyncio
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import batched, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from durabletask.testing import create_test_backend

from activities.outbox import outbox_give_up, outbox_pending, publish
from bench.metered_app import Requests, counting_requests
from bench.numbers import Row, Table, milliseconds
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.record import Facets, Status, archived
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.outbox import EventState
from durable_retry.engine.retry.policy import RetryPolicy, Timeouts
from durable_retry.services.outbox import SWEPT_AFTER, sweep
from durable_retry.settings.catalogue import STORAGE
from durable_retry.stores import queues, storage_clients, tables
from durable_retry.stores.dead_letters.index import (
    TABLE,
    IndexEntry,
    list_prefix,
    read_groups,
    read_summary,
)
from durable_retry.stores.dead_letters.list import list_dead_letters
from durable_retry.stores.dead_letters.records import keep_operation, move_dead_letter
from durable_retry.stores.operation_writes import commit_success
from durable_retry.stores.outbox import list_pending, new_event
from durable_retry.stores.outbox_index import INDEX_TABLE, ended_row, list_ended, own_location
from durable_retry.stores.tables import partition_of
from durable_retry.stores.task_hub import close_clients
from onebox.storage.installation import BUNDLED
from onebox.storage.ports import free_ports
from scripts.processes import ServerProcess, free_port

_ROWS_PER_TRANSACTION = 100
_TRANSACTIONS_AT_ONCE = 4
"""While Azurite works on one, this process writes the next: both are busy then."""
FEW = 1_000
MANY = 100_000
WHOLE = 600
"""Of the newest ones the dead letters themselves are there too: more than any measured page shows."""

PAGE = 50
DEPENDENCIES = 10
DEPENDENCY = "dependency-3"
DETAIL = "status 422"
ROUNDS = 5
NEWEST = datetime(2026, 11, 21, tzinfo=UTC)
SEVERAL = 10
PENDING = 10
NOW = datetime(2026, 11, 21, tzinfo=UTC)
EVENT = {"type": "charge.completed", "queue": "charge-events", "data": {"order": 42}}


@contextmanager
def storage_in_memory(folder: Path) -> Iterator[str]:
    """Runs Azurite and gives its connection string.

    Args:
        folder: Where it logs.
    """
    ports = free_ports()
    node = shutil.which("node") or str(Path(sys.executable).with_name("node"))
    server = ServerProcess(
        [node, str(BUNDLED), "--inMemoryPersistence", *ports.options],
        ready_url=f"http://127.0.0.1:{ports.table}/",
        log=folder / "azurite.log",
        env={},
    )
    server.start()
    try:
        yield ports.connection_string
    finally:
        server.stop()


@contextmanager
def storage_setting(connection: str) -> Iterator[None]:
    """Names the storage account for a while; other benchmarks have named their own."""
    before = os.environ.get(STORAGE.name)
    os.environ[STORAGE.name] = connection
    _forget_clients()
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(STORAGE.name, None)
        else:
            os.environ[STORAGE.name] = before
        _forget_clients()


def _forget_clients() -> None:
    """The app makes its clients once per process."""
    storage_clients.table_service.cache_clear()
    queues._service.cache_clear()  # noqa: SLF001 - nothing else does so


async def fill(table: str, rows: Iterable[tables.Row]) -> None:
    """Puts new rows into a table."""
    of_partition = itemgetter("PartitionKey")
    groups = (
        group
        for _, some in groupby(sorted(rows, key=of_partition), of_partition)
        for group in batched(some, _ROWS_PER_TRANSACTION, strict=False)
    )

    async def work() -> None:
        for group in groups:  # all workers take from the same groups
            await tables.transact(table, [("create", row) for row in group])

    await asyncio.gather(*(work() for _ in range(_TRANSACTIONS_AT_ONCE)))


@dataclass(frozen=True, slots=True)
class Measured:
    """What one action took: requests, and seconds in the median of some rounds."""

    requests: int
    seconds: float


async def measured(act: Callable[[], Awaitable[Any]], rounds: int) -> Measured:
    """Does something so many times; the requests are those of one round on average."""
    requests, seconds = Requests(), []
    with counting_requests(requests):
        for _ in range(rounds):
            began = time.perf_counter()
            await act()
            seconds.append(time.perf_counter() - began)
    return Measured(requests.count // rounds, statistics.median(seconds))


async def measure_dead_letters(folder: Path, _operations: int) -> list[Table]:
    """Counts requests on an Azurite of its own, then fills its lists and reads their first pages.

    Args:
        folder: Where Azurite logs.
    """
    with storage_in_memory(folder) as connection, storage_setting(connection):
        return [await _writing_dead_letters(), await _listing_dead_letters()]


async def _writing_dead_letters() -> Table:
    await keep_operation(dead_letter_entry(0), NEWEST - timedelta(days=1))  # makes the tables
    kept = await measured(lambda: keep_operation(dead_letter_entry(1), NEWEST), rounds=1)
    again = await measured(lambda: keep_operation(dead_letter_entry(1), NEWEST), rounds=1)
    dead_letter_id = await keep_operation(dead_letter_entry(1), NEWEST)
    moved = await measured(
        lambda: move_dead_letter(dead_letter_id, lambda record: archived(record, NEWEST)), rounds=1
    )
    rows = (
        Row("requests", "1", tuple(str(one.requests) for one in (kept, again, moved))),
        Row("time", "ms", tuple(milliseconds(one.seconds) for one in (kept, again, moved))),
    )
    notes = (
        "Kept: the row, the two counts, one transaction of ten rows. Again: a repeated activity.",
        "Archived: intent, row, the lists of both statuses, intent away.",
    )
    return Table("Writing one dead letter", ("kept", "kept again", "archived"), rows, notes)


async def _listing_dead_letters() -> Table:
    for number in range(WHOLE):
        await keep_operation(dead_letter_entry(number), NEWEST - timedelta(seconds=number))
    await fill_dead_letters(WHOLE, FEW)
    few = [await measured(read, ROUNDS) for _, read in _dead_letter_reads()]
    await fill_dead_letters(FEW, MANY)
    many = [await measured(read, ROUNDS) for _, read in _dead_letter_reads()]
    rows = [
        row
        for (name, _), small, large in zip(_dead_letter_reads(), few, many, strict=True)
        for row in (
            Row(f"{name}: requests", "1", (str(small.requests), str(large.requests))),
            Row(f"{name}: time p50", "ms", (milliseconds(small.seconds), milliseconds(large.seconds))),
        )
    ]
    notes = (
        f"A page of {PAGE}: one read of the list for each status, and one of each dead letter shown.",
        f"Of those older than the newest {WHOLE} the rows of the two lists are there that are read here.",
        "Azurite looks at every row of a table for each query; Azure reads a range of keys.",
    )
    return Table("The first page of many dead letters", (f"{FEW:,}", f"{MANY:,}"), tuple(rows), notes)


def _dead_letter_reads() -> list[tuple[str, Callable[[], Awaitable[Any]]]]:
    return [
        ("all", lambda: list_dead_letters(DeadLetterFilter(), limit=PAGE, cursor=None)),
        (
            "one of ten dependencies",
            lambda: list_dead_letters(DeadLetterFilter(dependency=DEPENDENCY), limit=PAGE, cursor=None),
        ),
        ("summary", read_summary),
        ("groups", read_groups),
    ]


async def fill_dead_letters(first: int, last: int) -> None:
    """Put dead letters into the lists that are read, each older than the one before."""
    await fill(TABLE, _list_rows("all", range(first, last)))
    read = (number for number in range(first, last) if _dependency(number) == DEPENDENCY)
    await fill(TABLE, _list_rows(f"dependency={DEPENDENCY}", read))


def _list_rows(name: str, numbers: Iterable[int]) -> Iterator[tables.Row]:
    for number in numbers:
        facets = Facets(
            reason="RejectedByDependency", category="malformed", dependency=_dependency(number), group="g-0"
        )
        created_at = NEWEST - timedelta(seconds=number)
        names = {
            "key": f"key-{number}",
            "operation_id": f"op-{number}",
            "correlation_id": "",
            "detail": DETAIL,
        }
        entry = IndexEntry(id=f"dl-{number:032x}", created_at=created_at, facets=facets, names=names)
        keys = {
            "PartitionKey": partition_of(Status.OPEN, entry.id),
            "RowKey": f"{list_prefix(name)}{entry.position}",
        }
        yield {**keys, **entry.properties()}


def _dependency(number: int) -> str:
    return f"dependency-{number % DEPENDENCIES}"


def dead_letter_entry(number: int) -> dict[str, Any]:
    """Returns what the activity `dead_letter` takes."""
    operation = OperationInput(
        operation_id=f"op-{number}",
        key=f"key-{number}",
        source="bench",
        dependency=_dependency(number),
        fingerprint="f",
        policy=RetryPolicy(),
        timeouts=Timeouts(),
        created_at=NEWEST,
        request={"method": "POST", "path": "/charges", "query": {}, "headers": {}, "json": {"amount": 5}},
    )
    attempt = {"number": 1, "started_at": "2026-11-21T00:00:00Z", "status_code": 422, "error": "no amount"}
    return {
        "operation": operation.to_json(),
        "category": "malformed",
        "reason": "RejectedByDependency",
        "detail": DETAIL,
        "attempts": [attempt],
    }


async def measure_outbox(folder: Path, _operations: int) -> list[Table]:
    """Counts requests on an Azurite of its own, then fills the list of sent events and sweeps beside it.

    Args:
        folder: Where Azurite logs.
    """
    with storage_in_memory(folder) as connection, storage_setting(connection):
        return [await _writing_events(), await _sweeping_events()]


async def _writing_events() -> Table:
    await _committed("op-first", 1)
    await _sent("op-first")  # makes the tables and the queue
    cases = {
        "1 event": (1, await _phases("op-one", 1, _sent)),
        f"{SEVERAL} events": (SEVERAL, await _phases("op-several", SEVERAL, _sent)),
        "1 event, given up": (1, await _phases("op-bad", 1, _given_up)),
    }
    values = cases.values()
    rows = (
        Row("commit: requests", "1", tuple(str(commit.requests) for _, (commit, _) in values)),
        Row("sending: requests", "1", tuple(str(rest.requests) for _, (_, rest) in values)),
        Row("both, per event", "1", tuple(_per_event(number, *both) for number, both in values)),
        Row("commit: time", "ms", tuple(milliseconds(commit.seconds) for _, (commit, _) in values)),
        Row("sending: time", "ms", tuple(milliseconds(rest.seconds) for _, (_, rest) in values)),
    )
    notes = (
        "All requests to storage, the message to the queue among them: one for each event that is sent.",
        "Commit: the note for the sweeper, then result and events in one transaction.",
        "Sending: looking up what is pending, each event, and the look that finds nothing left.",
        "Given up: the dead letter is written instead (see the table of dead letters).",
    )
    return Table("What events cost", tuple(cases), rows, notes)


def _per_event(number: int, commit: Measured, sending: Measured) -> str:
    return f"{(commit.requests + sending.requests) / number:.1f}"


async def _phases(
    operation_id: str, events: int, send: Callable[[str], Awaitable[None]]
) -> tuple[Measured, Measured]:
    """Commit an operation with events, and send them, or give them up."""
    commit = await measured(lambda: _committed(operation_id, events), rounds=1)
    return commit, await measured(lambda: send(operation_id), rounds=1)


async def _committed(operation_id: str, events: int) -> None:
    await commit_success(operation_id, {"value": 1}, [], [EVENT] * events, NOW)


async def _sent(operation_id: str) -> None:
    """Do what the outbox does, activity by activity."""
    for request in await _to_send(operation_id):
        await publish(request, "no hub: a queue has no circuit")
    await outbox_pending({"operation_id": operation_id})


async def _given_up(operation_id: str) -> None:
    for request in await _to_send(operation_id):
        await outbox_give_up(request | {"category": "malformed", "detail": "status 422"})
    await outbox_pending({"operation_id": operation_id})


async def _to_send(operation_id: str) -> list[dict[str, Any]]:
    found = await outbox_pending({"operation_id": operation_id})
    return [{"delivery": delivery, "place": found["place"], "attempt": 1} for delivery in found["deliveries"]]


async def _sweeping_events() -> Table:
    for number in range(PENDING):
        await _committed(f"op-pending-{number}", 1)
    with _task_hub() as hub:
        reads = _event_reads(hub)
        await fill(INDEX_TABLE, sent_rows(0, FEW))
        few = [await measured(read, ROUNDS) for _, read in reads]
        await fill(INDEX_TABLE, sent_rows(FEW, MANY))
        many = [await measured(read, ROUNDS) for _, read in reads]
        await close_clients()
    rows = [
        row
        for (name, _), small, large in zip(reads, few, many, strict=True)
        for row in (
            Row(f"{name}: requests", "1", (str(small.requests), str(large.requests))),
            Row(f"{name}: time p50", "ms", (milliseconds(small.seconds), milliseconds(large.seconds))),
        )
    ]
    notes = (
        f"{PENDING} operations with a pending event each; of the sent ones the rows of the index are there.",
        f"A sweep reads the {PENDING} notes, and asks the task hub for {PENDING} orchestrations.",
        "Azurite looks at every row of a table for each query; Azure reads a range of keys.",
    )
    columns = (f"{FEW:,} sent", f"{MANY:,} sent")
    return Table(f"Sweeping with {PENDING} pending events", columns, tuple(rows), notes)


def _event_reads(hub: str) -> list[tuple[str, Callable[[], Awaitable[Any]]]]:
    return [
        ("sweep", lambda: sweep(hub, NOW + 2 * SWEPT_AFTER)),
        ("all that is pending", lambda: list_pending(PAGE, None)),
        (f"first {PAGE} sent", lambda: list_ended(EventState.SENT, PAGE, None)),
    ]


def sent_rows(first: int, last: int) -> Iterator[tables.Row]:
    """Give the index rows of events that were sent, each older than the one before."""
    for number in range(first, last):
        operation_id = f"op-sent-{number}"
        created_at = NOW - timedelta(seconds=number)
        event = new_event(operation_id, 1, EVENT, None, created_at)
        sent = replace(event, state=EventState.SENT, sent_at=created_at)
        yield ended_row(sent, own_location(operation_id))


@contextmanager
def _task_hub() -> Iterator[str]:
    """Run a task hub without workers: it takes in what is started."""
    port = free_port()
    backend = create_test_backend(port=port)
    try:
        yield json.dumps({"taskHubName": "bench", "rpcBaseUrl": f"127.0.0.1:{port}"})
    finally:
        backend.stop()
