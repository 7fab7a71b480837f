"""What an event costs in requests to storage, and a sweep with 10 pending ones beside 100,000 sent ones."""

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from durabletask.testing import create_test_backend

from activities.outbox import outbox_give_up, outbox_pending, publish
from bench.measured import Measured, measured
from bench.numbers import Row, Table, milliseconds
from bench.storage import fill, storage_in_memory, storage_setting
from durable_retry.engine.outbox import EventState
from durable_retry.services.outbox import SWEPT_AFTER, sweep
from durable_retry.stores import tables
from durable_retry.stores.operation_writes import commit_success
from durable_retry.stores.outbox import list_pending, new_event
from durable_retry.stores.outbox_index import INDEX_TABLE, ended_row, list_ended, own_location
from durable_retry.stores.task_hub import close_clients
from scripts.processes import free_port

SEVERAL = 10
PENDING = 10
FEW = 1_000
MANY = 100_000
PAGE = 50
ROUNDS = 5
NOW = datetime(2026, 11, 21, tzinfo=UTC)
EVENT = {"type": "charge.completed", "queue": "charge-events", "data": {"order": 42}}


async def measure(folder: Path, _operations: int) -> list[Table]:
    """Counts requests on an Azurite of its own, then fills the list of sent events and sweeps beside it.

    Args:
        folder: Where Azurite logs.
    """
    with storage_in_memory(folder) as connection, storage_setting(connection):
        return [await _writing(), await _sweeping()]


async def _writing() -> Table:
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


async def _sweeping() -> Table:
    for number in range(PENDING):
        await _committed(f"op-pending-{number}", 1)
    with _task_hub() as hub:
        reads = _reads(hub)
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


def _reads(hub: str) -> list[tuple[str, Callable[[], Awaitable[Any]]]]:
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
