"""Upkeep of histories and of the index: what is past its time is removed."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from durable_retry import clock
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.operations.idempotency import KeyRecord, KeyRecordState
from durable_retry.services.upkeep import histories as operation_index
from durable_retry.services.upkeep.histories import remove_old, remove_record
from durable_retry.stores.operations.index import (
    NAMES_TABLE,
    TABLE,
    OperationEntry,
    OperationList,
    buckets,
    ids_of_name,
    write_entries,
)
from durable_retry.stores.storage import clients as storage_clients
from durable_retry.stores.task_hub import TaskHub
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
    assert (await ids_of_name("c", limit=5, cursor=None)).operation_ids == ["op-1"]
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
    record = KeyRecord(
        state=KeyRecordState.IN_PROGRESS if expired is None else KeyRecordState.COMPLETED,
        owner="o",
        fingerprint="f",
        claimed_at=NOON,
        expires_at=None if expired is None else NOON - expired,
    )

    async def read_record(_hub: TaskHub, operation_id: str) -> KeyRecord | None:
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
