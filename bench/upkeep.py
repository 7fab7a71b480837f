"""Whether upkeep holds at 200 operations a second: its requests and rates, and a week of it.

The requests and rates are measured on the app's own code against an Azurite. The week is simulated, with the
same code on tables in memory and a clock of its own: one operation in `SCALE` is there, and a request takes
`SCALE` times as long as on a storage account, so that as much of each hour is left as at the full rate.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.metered_app import Requests, counting_requests
from bench.numbers import Row, Table
from bench.storage import fill, storage_in_memory, storage_setting
from durable_retry import clock
from durable_retry.engine.base.names import OperationState, outbox_instance
from durable_retry.engine.outbox import EventState, StoredEvent, event_id_for
from durable_retry.services import maintenance, operation_index, retention
from durable_retry.services.maintenance import RetentionKind, RetentionPart, remove_past
from durable_retry.settings.maintenance import MaintenanceSettings
from durable_retry.stores import storage_clients, tables
from durable_retry.stores.operation_index import TABLE as INDEX
from durable_retry.stores.operation_index import OperationEntry, OperationList, write_entries
from durable_retry.stores.operation_writes import TABLE as MARKERS
from durable_retry.stores.operation_writes import commit_success, insert_marker
from durable_retry.stores.outbox import find_event, mark_sent, new_event, pending_of, row_of
from durable_retry.stores.outbox_index import INDEX_TABLE, OUTBOX_TABLE, ended_row, own_location
from durable_retry.stores.results import store_apart
from durable_retry.stores.task_hub import LIGHT_ROWS
from tests.support.builders import an_operation
from tests.support.tables import TablesInMemory

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
EVENT = {"type": "charge.completed", "queue": "charge-events", "data": {"order": 42}}
KEPT = timedelta(days=1)
RECORDED = timedelta(hours=12)
"""How long the record of a key counts."""
PER_SECOND = 200
MEASURED = 2_000
"""Operations whose rows are removed for each measured rate."""

RESULT_CHARS = 10_000

SCALE = 10_000
REQUEST_SECONDS = 0.01
AT_ONCE = 16
"""Of requests, by one part of a kind."""

INSTANCES_PER_PAGE = LIGHT_ROWS
ENTITIES_PER_PAGE = 100
"""On Azure Storage."""

EVERY = timedelta(minutes=5)
PARTS = [
    RetentionPart(kind, shard) for kind in RetentionKind for shard in range(maintenance.SHARDS.get(kind, 1))
]


def id_of(number: int) -> str:
    """Returns the id of an operation."""
    return f"op-{sha256(str(number).encode()).hexdigest()[:32]}"


def settings() -> MaintenanceSettings:
    """Returns settings that keep everything for a day."""
    return MaintenanceSettings(archived_for=KEPT, history_for=KEPT, sent_for=KEPT, metrics_for=KEPT)


@dataclass
class TaskHub:
    """What retention asks of a task hub: instances and entities by their ids, each with an instant.

    Attributes:
        spend: Called for each request.
        instances: When each began.
        records: When each expires.
    """

    spend: Callable[[int], None]
    instances: dict[str, datetime] = field(default_factory=dict)
    records: dict[str, datetime] = field(default_factory=dict)

    async def has_ended(self, _hub: str, _operation_id: str) -> bool:
        """Answer for an operation that has ended."""
        self.spend(1)
        return True

    async def purge_ended(self, _hub: str, instance_id: str, started_before: datetime) -> bool:
        """Look at one instance, and purge it if it is old."""
        began = self.instances.get(instance_id)
        is_old = began is not None and began < started_before
        self.spend(2 if is_old else 1)
        if is_old:
            del self.instances[instance_id]
        return is_old

    async def remove_record(self, _hub: str, operation_id: str, now: datetime) -> None:
        """Look at one record, and purge it if its time is over."""
        expires_at = self.records.get(operation_id)
        is_over = expires_at is not None and expires_at <= now
        self.spend(2 if is_over else 1)
        if is_over:
            del self.records[operation_id]

    async def purge_others(
        self, _hub: str, started_before: datetime, _now: datetime, after: str
    ) -> tuple[int, str]:
        """Look at one page of instances."""
        page = sorted(name for name in self.instances if after == tables.FIRST or name > after)[
            :INSTANCES_PER_PAGE
        ]
        old = [name for name in page if self.instances[name] < started_before]
        self.spend(1 + len(old))
        for name in old:
            del self.instances[name]
        return len(old), page[-1] if len(page) == INSTANCES_PER_PAGE else tables.FIRST

    async def clean_entities(self, _hub: str, token: str | None) -> tuple[int, str | None]:
        """Look at one page of entities, none of which is empty."""
        page = sorted(name for name in self.records if token is None or name > token)[:ENTITIES_PER_PAGE]
        self.spend(1)
        return 0, page[-1] if len(page) == ENTITIES_PER_PAGE else None

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Stand in for the task hub."""
        with (
            patch.object(retention, "has_ended", self.has_ended),
            patch.object(operation_index, "has_ended", self.has_ended),
            patch.object(retention, "purge_ended", self.purge_ended),
            patch.object(operation_index, "purge_ended", self.purge_ended),
            patch.object(operation_index, "remove_record", self.remove_record),
            patch.object(maintenance, "purge_others", self.purge_others),
            patch.object(maintenance, "clean_entities", self.clean_entities),
            patch.object(maintenance, "maintenance_settings", settings),
        ):
            yield


@dataclass
class Week:
    """A simulated time of the app's life.

    Attributes:
        account: Its tables.
        now: The present.
        scale: How many operations one stands for.
        spent: Requests of the part that runs.
        busy: Seconds that each part worked, by its name.
        owed: Seconds that each worked beyond the present.
        sizes: Rows, instances and records at the end of each day, by their kind.
    """

    account: TablesInMemory = field(default_factory=TablesInMemory)
    now: datetime = BEGIN
    scale: int = SCALE
    spent: int = 0
    busy: dict[str, float] = field(default_factory=dict)
    owed: dict[str, float] = field(default_factory=dict)
    sizes: list[dict[str, int]] = field(default_factory=list)
    hub: TaskHub = field(init=False)

    def __post_init__(self) -> None:
        self.hub = TaskHub(self._spend)

    def _spend(self, requests: int) -> None:
        self.spent += requests

    @property
    def seconds(self) -> float:
        """How long the requests of this part took."""
        return self.spent * REQUEST_SECONDS * self.scale / AT_ONCE

    async def live(self, days: int) -> None:
        """Let operations end at an even rate, and upkeep run every five minutes."""
        with self._in_place():
            number, until = 0, BEGIN + timedelta(days=days)
            while self.now < until:
                self.now += EVERY
                due = int((self.now - BEGIN).total_seconds() * PER_SECOND / self.scale)
                while number < due:
                    await self.end(number)
                    number += 1
                for part in PARTS:
                    await self._work(part)
                if (self.now - BEGIN) % timedelta(days=1) == timedelta(0):
                    self.sizes.append(self._counted())

    async def end(self, number: int) -> None:
        """Write what an operation of a handler leaves; every second one has an event."""
        operation_id, outbox_id = id_of(number), f"{id_of(number)}.1"
        await write_entries(f"w{number}", [(OperationList.ALL, entry_of(operation_id, self.now))])
        await insert_marker(operation_id, 1, self.now)
        await commit_success(outbox_id, {"value": number}, [], [EVENT] if number % 2 else [], self.now)
        if number % 2:
            stored = await find_event(event_id_for(outbox_id, 1))
            if stored is not None:
                await mark_sent(stored, self.now, 1)
            await pending_of(outbox_id, self.now)
            self.hub.instances[outbox_instance(outbox_id)] = self.now
        self.hub.instances[operation_id] = self.now
        self.hub.records[operation_id] = self.now + RECORDED

    async def _work(self, part: RetentionPart) -> None:
        """Remove one part until nothing is left, or the next look begins."""
        self.spent, longest = 0, EVERY.total_seconds()
        before = self.owed.get(part.instance_id, 0.0)
        # One step may take all of the time: a request takes as long as a page of them does at the full rate.
        while (left := longest - before - self.seconds) > 0:
            if not await remove_past("", part, self.now, left):
                break
        # A page stands for many times as many rows, so a step may take longer than there is time.
        self.owed[part.instance_id] = max(0.0, before + self.seconds - longest)
        self.busy[part.instance_id] = self.busy.get(part.instance_id, 0.0) + self.seconds

    def _counted(self) -> dict[str, int]:
        rows = {name: len(self.account.rows(name)) for name in (INDEX, MARKERS, OUTBOX_TABLE, INDEX_TABLE)}
        return rows | {"instances": len(self.hub.instances), "records": len(self.hub.records)}

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        async def run(table: str, action: Callable[[Any], Any]) -> Any:
            self._spend(1)
            return tables.with_table(table, action)

        with (
            patch.object(storage_clients, "table_service", lambda: self.account),
            patch.object(tables, "_run", run),
            clock.reading(lambda: self.now, lambda: self.seconds),
            self.hub.in_place(),
        ):
            yield


def entry_of(operation_id: str, created_at: datetime) -> OperationEntry:
    """Returns the index's entry of an operation that succeeded."""
    return OperationEntry(
        operation_id=operation_id,
        created_at=created_at,
        key=f"order-{operation_id}",
        dependency="payments",
        handler="charge",
        source="http",
        correlation_id=None,
        status=OperationState.SUCCEEDED,
    )


async def measure(folder: Path, _operations: int) -> list[Table]:
    """Measures on an Azurite of its own, then simulates the week."""
    with storage_in_memory(folder) as connection, storage_setting(connection):
        rates = await _rates()
    return [rates, await _week()]


@dataclass(frozen=True, slots=True)
class Rate:
    """What the removal of one kind took, of each operation.

    Attributes:
        requests: To the storage account.
        of_hub: To the task hub.
        per_second: Operations by one part.
        parts: How many there are.
    """

    requests: float
    of_hub: float
    per_second: float
    parts: int


async def _rates() -> Table:
    of_hub = Requests()

    def spend(requests: int) -> None:
        of_hub.count += requests

    hub = TaskHub(spend)
    found: dict[str, Rate] = {}
    with hub.in_place():
        for kind, filled in FILLED.items():
            async with filled(hub):
                found[kind] = await _removed(RetentionKind(kind), of_hub)
    rows = (
        Row("requests to storage", "1/op", tuple(f"{each.requests:.2f}" for each in found.values())),
        Row("calls of the task hub", "1/op", tuple(f"{each.of_hub:.2f}" for each in found.values())),
        Row("removed by one part", "op/s", tuple(f"{each.per_second:.0f}" for each in found.values())),
        Row("parts", "1", tuple(str(each.parts) for each in found.values())),
    )
    notes = (
        f"{MEASURED:,} operations whose time is over, with a row or event each; {AT_ONCE} requests at once.",
        "Time is that of one process and an Azurite on the same cores; calls of the task hub take none here.",
        f"Needed are {PER_SECOND} op/s by all parts together, and each part may have a worker of its own.",
    )
    columns = tuple(name.replace("_", " ") for name in found)
    return Table("Upkeep", columns, rows, notes)


async def _removed(kind: RetentionKind, of_hub: Requests) -> Rate:
    requests, before = Requests(), of_hub.count
    parts = [part for part in PARTS if part.kind is kind]
    now = BEGIN + 3 * KEPT
    began = time.perf_counter()
    with counting_requests(requests):
        for part in parts:
            while await remove_past("", part, now, maintenance.STEP_SECONDS):
                pass
    seconds = time.perf_counter() - began
    spent = of_hub.count - before
    return Rate(requests.count / MEASURED, spent / MEASURED, MEASURED / seconds, len(parts))


type Filled = Callable[[TaskHub], Any]


def _filled(fill_for: Callable[[TaskHub], Awaitable[None]]) -> Filled:
    @asynccontextmanager
    async def filled(hub: TaskHub) -> AsyncIterator[None]:
        await fill_for(hub)
        yield
        hub.instances.clear()
        hub.records.clear()

    return filled


async def _many(write: Callable[[int], Awaitable[Any]], numbers: Iterable[int] = range(MEASURED)) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with slots:
            await write(number)

    await asyncio.gather(*map(one, numbers))


@_filled
async def _with_markers(_hub: TaskHub) -> None:
    await _many(lambda number: insert_marker(id_of(number), 1, BEGIN))


@_filled
async def _with_commits(_hub: TaskHub) -> None:
    await _many(lambda number: commit_success(f"{id_of(number)}.1", {"value": 1}, [], [], BEGIN))


@_filled
async def _with_events(hub: TaskHub) -> None:
    """Events with their runs' commits, as they are once they were sent; written without the sending."""
    for number in range(MEASURED):
        hub.instances[outbox_instance(f"{id_of(number)}.1")] = BEGIN
    await _many(_write_sent)
    numbers = range(MEASURED)
    await fill(INDEX_TABLE, [ended_row(_sent(number), own_location(_outbox(number))) for number in numbers])


def _outbox(number: int) -> str:
    return f"{id_of(number)}.1"


def _sent(number: int) -> StoredEvent:
    event = new_event(_outbox(number), 1, EVENT, None, BEGIN + timedelta(milliseconds=number))
    return replace(event, state=EventState.SENT, sent_at=BEGIN)


async def _write_sent(number: int) -> None:
    keys = {"PartitionKey": _outbox(number)}
    commit = keys | {"RowKey": f"commit-{_outbox(number)}", "result_0": "{}"}
    event = row_of(own_location(_outbox(number)), _sent(number))
    await tables.transact(OUTBOX_TABLE, [("create", commit), ("create", event)])


@_filled
async def _with_operations(hub: TaskHub) -> None:
    """As many in ten seconds as there are at the rate."""
    made = [(id_of(number), BEGIN + timedelta(seconds=number / PER_SECOND)) for number in range(MEASURED)]
    hub.instances.update(made)
    hub.records.update((name, created_at + RECORDED) for name, created_at in made)
    await write_entries("bench", [(OperationList.ALL, entry_of(*each)) for each in made])


@_filled
async def _with_results(_hub: TaskHub) -> None:
    result = {"status_code": 200, "headers": {}, "json": {"text": "x" * RESULT_CHARS}}

    async def store(number: int) -> None:
        operation = an_operation(operation_id=id_of(number), ttl_seconds=60)
        await store_apart(operation, 1, result, most_chars=4_096, kept_for=timedelta(0), now=BEGIN)

    await _many(store)


FILLED: dict[str, Filled] = {
    RetentionKind.MARKERS: _with_markers,
    RetentionKind.SENT_EVENTS: _with_events,
    RetentionKind.COMMITS: _with_commits,
    RetentionKind.OPERATIONS: _with_operations,
    RetentionKind.RESULTS: _with_results,
}


async def _week() -> Table:
    week = Week()
    await week.live(days=7)
    names = {
        INDEX: "rows of the index of operations",
        MARKERS: "markers",
        OUTBOX_TABLE: "rows of commits and events",
        INDEX_TABLE: "rows of the outbox's index",
        "instances": "instances of the task hub",
        "records": "records of keys",
    }
    rows = [
        Row(text, "1", tuple(f"{sizes[name] * SCALE / 1e6:.1f} M" for sizes in week.sizes))
        for name, text in names.items()
        if name != INDEX
    ]
    kind, busiest = max(week.busy.items(), key=lambda item: item[1])
    share = busiest / timedelta(days=7).total_seconds()
    notes = (
        f"{PER_SECOND} operations a second of a handler, half of them with an event; all is kept for a day.",
        "The record of a key counts for half a day, and is removed with the history of its operation.",
        f"Simulated at 1/{SCALE:,} of the rate with 1/{SCALE:,} of the budget; sizes are scaled back.",
        f"A request takes {1000 * REQUEST_SECONDS:.0f} ms at the full rate, {AT_ONCE} at once by each part.",
        f"The busiest part, `{kind}`, worked {100 * share:.0f} % of the time.",
    )
    columns = tuple(f"day {day}" for day in range(1, 8))
    return Table(f"A week of {PER_SECOND} operations a second", columns, tuple(rows), notes)
