"""Upkeep of the index: what processes lost is added, what is past its time is removed."""

import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from durabletask.internal import orchestrator_service_pb2 as pb
from google.protobuf.wrappers_pb2 import StringValue

from durable_retry import clock
from durable_retry.engine.base.instants import to_rfc3339
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.operations.idempotency import Record, RecordState
from durable_retry.services.upkeep import histories as operation_index
from durable_retry.services.upkeep.histories import LOST_AFTER, add_lost, remove_old, remove_record
from durable_retry.stores.operations.index import (
    NAMES_TABLE,
    TABLE,
    OperationEntry,
    OperationList,
    buckets,
    gaps,
    ids_of_correlation,
    write_entries,
    write_since,
)
from durable_retry.stores.operations.status import OperationPreview, preview_of
from durable_retry.stores.storage import clients as storage_clients
from durable_retry.stores.task_hub import InstancePage, TaskHub
from tests.support.builders import NOON
from tests.support.tables import TablesInMemory


def entry(operation_id: str, age: timedelta, **more: Any) -> OperationEntry:
    given = {"key": "k", "dependency": "payments", "handler": None, "source": "http", "correlation_id": None}
    return OperationEntry(operation_id=operation_id, created_at=NOON - age, **(given | more))


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> TablesInMemory:
    account = TablesInMemory()
    monkeypatch.setattr(storage_clients, "table_service", lambda: account)
    monkeypatch.setattr(clock, "now", lambda: NOON)
    return account


async def listed(kind: OperationList = OperationList.ALL) -> list[str]:
    return [one.operation_id async for _, _, entries in buckets(kind, None) for one in entries]


class Hub:
    """A task hub of operations with their states; those of its pages were accepted before the gap."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.accepted: dict[str, timedelta] = {}
        self.states: dict[str, str] = {}
        self.pages: list[list[str]] = [[]]
        self.changed: dict[str, datetime] = {}
        self.asked: list[datetime] = []
        monkeypatch.setattr(operation_index, "scan_operations", self.scan)
        monkeypatch.setattr(operation_index, "find_status", self.find)
        monkeypatch.setattr(TaskHub, "instance_page", self.page)

    async def scan(
        self, _hub: TaskHub, *, created_after: Any, created_before: Any
    ) -> AsyncIterator[OperationPreview]:
        self.asked.append(created_after)
        for operation_id, age in self.accepted.items():
            if created_before is None or NOON - age < created_before:
                yield preview_of(self.instance(operation_id))

    async def page(self, _wanted: Any, token: str | None) -> InstancePage:
        number = int(token or 0)
        following = str(number + 1) if number + 1 < len(self.pages) else None
        return InstancePage([self.instance(each) for each in self.pages[number]], following)

    def instance(self, operation_id: str) -> pb.OrchestrationState:
        shown = json.dumps({"status": self.states.get(operation_id, "succeeded")})
        instance = pb.OrchestrationState(instanceId=operation_id, customStatus=StringValue(value=shown))
        instance.lastUpdatedTimestamp.FromDatetime(self.changed.get(operation_id, NOON))
        return instance

    async def find(self, _hub: TaskHub, operation_id: str) -> dict[str, Any] | None:
        if operation_id not in self.states:
            return None
        created_at = to_rfc3339(NOON - self.accepted.get(operation_id, timedelta(minutes=50)))
        return {
            "operation_id": operation_id,
            "key": "k",
            "dependency": "payments",
            "source": "http",
            "correlation_id": None,
            "status": self.states[operation_id],
            "attempts": [],
            "dead_letter": None,
            "created_at": created_at,
            "updated_at": created_at,
        }


async def failed() -> dict[str, Any]:
    return {
        each.operation_id: each.status
        async for _, _, entries in buckets(OperationList.FAILED, None)
        for each in entries
    }


@pytest.mark.usefixtures("account")
async def test_what_an_ended_process_lost_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch)
    hub.accepted = {"op-known": timedelta(minutes=7), "op-lost": timedelta(minutes=6)}
    hub.states = {"op-lost": "succeeded"}
    for name, age in {"op-known": 7, "op-old": 90}.items():
        await write_entries(name, [(OperationList.ALL, entry(name, timedelta(minutes=age)))])
    await write_since("lively", NOON)
    assert await add_lost(TaskHub(""), NOON, 20) == 0
    since = NOON - timedelta(minutes=8)
    await write_since("gone", since)
    assert await add_lost(TaskHub(""), NOON, 20) == 1
    assert await listed() == ["op-lost", "op-known", "op-old"]
    assert hub.asked == [since]
    assert list(await gaps(NOON + LOST_AFTER)) == ["lively"]


@pytest.mark.usefixtures("account")
async def test_what_a_process_accepted_after_it_last_announced_itself_is_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It renews its row every half a minute, and was killed just before it would have."""
    hub = Hub(monkeypatch)
    announced = LOST_AFTER + timedelta(seconds=1)
    hub.accepted = {"op-lost": announced - timedelta(seconds=34)}
    hub.states = {"op-lost": "running"}
    await write_since("gone", NOON - announced)
    assert await add_lost(TaskHub(""), NOON, 20) == 1
    assert await listed() == ["op-lost"]


STATES = {
    "op-new": "dead_lettered",
    "op-held": "waiting_circuit",
    "op-well": "succeeded",
    "op-behind": "cancelled",
    "op-wrong": "dead_lettered",
    "op-right": "cancelled",
    "op-before": "dead_lettered",
}


@pytest.mark.usefixtures("account")
async def test_a_state_that_an_ended_process_did_not_note_is_added_also_of_what_was_accepted_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = Hub(monkeypatch)
    hub.accepted = dict.fromkeys(("op-new", "op-held", "op-well"), timedelta(minutes=7))
    hub.states = dict(STATES)
    hub.pages = [["op-behind", "op-wrong"], ["op-right", "op-before"]]
    hub.changed = {"op-before": NOON - timedelta(minutes=9)}
    hour = timedelta(minutes=50)
    held = [(OperationList.ALL, entry(name, hub.accepted.get(name, hour))) for name in STATES]
    noted = {"op-wrong": OperationState.WAITING_RETRY, "op-right": OperationState.CANCELLED}
    held += [(OperationList.FAILED, entry(name, hour, status=status)) for name, status in noted.items()]
    await write_entries("w", held)
    await write_since("gone", NOON - timedelta(minutes=8))
    assert await add_lost(TaskHub(""), NOON, 20) == 4
    assert await failed() == {
        "op-new": "dead_lettered",
        "op-held": "waiting_circuit",
        "op-behind": "cancelled",
        "op-wrong": "dead_lettered",
        "op-right": "cancelled",
    }
    assert sorted(await listed()) == sorted(STATES)
    assert not await gaps(NOON)


@pytest.mark.usefixtures("account")
async def test_reading_all_instances_goes_on_in_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch)
    hub.states = {"op-1": "cancelled", "op-2": "cancelled", "op-3": "cancelled"}
    hub.pages = [[each] for each in hub.states]
    since = NOON - timedelta(minutes=8)
    await write_since("gone", since)
    assert await add_lost(TaskHub(""), NOON, 0) == 1
    # What another process loses meanwhile waits for a round of its own.
    await write_since("gone-too", NOON - timedelta(minutes=1))
    late = NOON + timedelta(minutes=5)
    assert await add_lost(TaskHub(""), late, 0) == 1
    assert sorted(await gaps(late)) == ["gone", "gone-too"]
    assert await add_lost(TaskHub(""), late, 0) == 1
    assert sorted(await failed()) == ["op-1", "op-2", "op-3"]
    assert list(await gaps(late)) == ["gone-too"]
    assert await add_lost(TaskHub(""), late, 20) == 0
    assert not await gaps(late)
    assert hub.asked == [since, NOON - timedelta(minutes=1)]


async def test_what_is_past_its_time_is_removed_but_what_has_not_ended_is_kept(
    account: TablesInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def has_ended(_hub: TaskHub, operation_id: str) -> bool:
        return operation_id != "op-waits"

    purged: list[str] = []
    removed_records: list[str] = []

    async def purge_ended(_hub: TaskHub, operation_id: str, completed_before: datetime) -> None:
        assert completed_before == NOON - timedelta(days=7)
        purged.append(operation_id)

    async def remove_record(_hub: TaskHub, operation_id: str, now: datetime) -> bool:
        assert (operation_id in purged, now) == (False, NOON)
        removed_records.append(operation_id)
        return operation_id != "op-9"

    monkeypatch.setattr(operation_index, "has_ended", has_ended)
    monkeypatch.setattr(TaskHub, "purge_instance", purge_ended)
    monkeypatch.setattr(operation_index, "remove_record", remove_record)
    waiting = {"status": OperationState.WAITING_RETRY}
    for age in (1, 8, 9):
        name, old = f"op-{age}", timedelta(days=age)
        held = [
            (OperationList.ALL, entry(name, old, correlation_id="c")),
            (OperationList.FAILED, entry(name, old, **waiting)),
        ]
        await write_entries(name, held)
    await write_entries("w", [(OperationList.FAILED, entry("op-waits", timedelta(days=8), **waiting))])
    for expected in (4, 0):  # Two of all, and two of those that failed beside the one that stays.
        removed = sum([number async for number in remove_old(TaskHub(""), NOON - timedelta(days=7), NOON)])
        assert removed == expected + (expected > 0)
    assert removed_records == ["op-8", "op-9"]
    assert purged == ["op-8"]  # The record of the other one still needs its history.
    assert await listed() == ["op-1"]
    assert await listed(OperationList.FAILED) == ["op-1", "op-waits"]
    assert (await ids_of_correlation("c", limit=5, cursor=None)).operation_ids == ["op-1"]
    assert (len(account.rows(TABLE)), len(account.rows(NAMES_TABLE))) == (3, 1)


@pytest.mark.parametrize(
    ("expired", "purges", "expected"),
    [
        (timedelta(hours=1), True, ["purge"]),
        (timedelta(hours=1), False, ["purge", NOON]),
        (timedelta(minutes=59), True, [NOON]),
        (-timedelta(hours=2), True, [NOON + timedelta(hours=2)]),
        (None, True, ["complete"]),
    ],
)
async def test_a_record_is_purged_when_its_time_is_over_and_else_ends_then(
    monkeypatch: pytest.MonkeyPatch, expired: timedelta | None, purges: Any, expected: list[Any]
) -> None:
    done: list[Any] = []
    record = Record(
        state=RecordState.IN_PROGRESS if expired is None else RecordState.COMPLETED,
        owner="o",
        fingerprint="f",
        claimed_at=NOON,
        expires_at=None if expired is None else NOON - expired,
    )

    async def read_record(_hub: TaskHub, operation_id: str) -> Record | None:
        return None if operation_id == "op-none" else record

    async def purge_record(_hub: TaskHub, _operation_id: str) -> bool:
        done.append("purge")
        return bool(purges)

    async def expire_record(_hub: TaskHub, _operation_id: str, at: datetime) -> None:
        done.append(at)

    async def complete_lost_end(_hub: TaskHub, operation_id: str) -> bool:
        if operation_id == "op-none":  # It has expired.
            return False
        done.append("complete")
        return True

    for stand_in in (read_record, purge_record, expire_record, complete_lost_end):
        monkeypatch.setattr(operation_index, stand_in.__name__, stand_in)
    assert await remove_record(TaskHub(""), "op-none", NOON)
    assert not done
    assert await remove_record(TaskHub(""), "op-1", NOON) is (expired is not None)
    assert done == expected
