"""What a dead letter costs in requests to table storage, and a list of 100,000 of them."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.measured import measured
from bench.numbers import Row, Table, milliseconds
from bench.storage import fill, storage_in_memory, storage_setting
from durable_retry.engine.dead_letters.record import archived
from durable_retry.engine.dead_letters.replay import DeadLetterFilter, Facets
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.retry.policy import RetryPolicy, Timeouts
from durable_retry.stores import tables
from durable_retry.stores.dead_letters.index import TABLE, IndexEntry, list_prefix, read_groups, read_summary
from durable_retry.stores.dead_letters.list import list_dead_letters
from durable_retry.stores.dead_letters.records import keep_operation, move_dead_letter

FEW = 1_000
MANY = 100_000
WHOLE = 600
"""Of the newest ones the dead letters themselves are there too: more than any measured page shows."""

PAGE = 50
DEPENDENCIES = 10
DEPENDENCY = "dependency-3"
ROUNDS = 5
NEWEST = datetime(2026, 11, 21, tzinfo=UTC)


async def measure(folder: Path, _operations: int) -> list[Table]:
    """Counts requests on an Azurite of its own, then fills its lists and reads their first pages.

    Args:
        folder: Where Azurite logs.
    """
    with storage_in_memory(folder) as connection, storage_setting(connection):
        return [await _writing(), await _listing()]


async def _writing() -> Table:
    await keep_operation(_entry(0), NEWEST - timedelta(days=1))  # makes the tables
    kept = await measured(lambda: keep_operation(_entry(1), NEWEST), rounds=1)
    again = await measured(lambda: keep_operation(_entry(1), NEWEST), rounds=1)
    dead_letter_id = await keep_operation(_entry(1), NEWEST)
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


async def _listing() -> Table:
    for number in range(WHOLE):
        await keep_operation(_entry(number), NEWEST - timedelta(seconds=number))
    await _fill(WHOLE, FEW)
    few = [await measured(read, ROUNDS) for _, read in _reads()]
    await _fill(FEW, MANY)
    many = [await measured(read, ROUNDS) for _, read in _reads()]
    rows = [
        row
        for (name, _), small, large in zip(_reads(), few, many, strict=True)
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


def _reads() -> list[tuple[str, Callable[[], Awaitable[Any]]]]:
    return [
        ("all", lambda: list_dead_letters(DeadLetterFilter(), limit=PAGE, cursor=None)),
        (
            "one of ten dependencies",
            lambda: list_dead_letters(DeadLetterFilter(dependency=DEPENDENCY), limit=PAGE, cursor=None),
        ),
        ("summary", read_summary),
        ("groups", read_groups),
    ]


async def _fill(first: int, last: int) -> None:
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
        entry = IndexEntry(id=f"dl-{number:032x}", created_at=created_at, facets=facets)
        keys = {"PartitionKey": "open", "RowKey": f"{list_prefix(name)}{entry.position}"}
        yield {**keys, **entry.properties()}


def _dependency(number: int) -> str:
    return f"dependency-{number % DEPENDENCIES}"


def _entry(number: int) -> dict[str, Any]:
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
        "detail": "status 422",
        "attempts": [attempt],
    }
