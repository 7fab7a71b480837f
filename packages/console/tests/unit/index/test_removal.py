"""Upkeep of the index: what is past its time is removed, with the histories that it finds."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from durable_retry.base.names import OperationState
from durable_retry.hub.instances import Instance
from durable_retry.hub.task_hub import TaskHub
from durable_retry.runtime import clock
from durable_retry.storage import clients as storage_clients
from durable_retry.upkeep.removal import Past
from durable_retry_console.index import removal
from durable_retry_console.index.removal import PARTS_OF_OPERATIONS, remove_old
from durable_retry_console.index.store import (
    NAMES_TABLE,
    TABLE,
    OperationEntry,
    OperationList,
    buckets,
    ids_of_name,
)
from tests.support.builders import NOON, an_operation, instance_of
from tests.support.operation_index import write_entries
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
    return [one.operation_id async for _, _, entries in buckets([kind], None) for one in entries]


async def test_what_is_past_its_time_is_removed_but_what_has_not_ended_is_kept(
    account: TablesInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_instance(_hub: TaskHub, operation_id: str) -> Instance | None:
        return None if operation_id == "op-gone" else an_instance(operation_id)

    purged: list[str] = []
    removed_records: list[str] = []
    kept: list[str] = []

    async def purge_ended(_hub: TaskHub, instance: Instance, completed_before: datetime) -> None:
        assert completed_before == NOON - timedelta(days=7)
        purged.append(instance.instance_id)

    async def remove_record(_: TaskHub, operation_id: str, instance: Instance | None, now: datetime) -> bool:
        assert (operation_id in purged, now) == (False, NOON)
        assert instance is not None
        removed_records.append(operation_id)
        return operation_id != "op-9"

    async def keep_gone(_hub: TaskHub, gone: OperationEntry) -> None:
        kept.append(gone.operation_id)

    monkeypatch.setattr(TaskHub, "read_instance", read_instance)
    monkeypatch.setattr(TaskHub, "purge_instance", purge_ended)
    monkeypatch.setattr(removal, "remove_record", remove_record)
    monkeypatch.setattr(removal, "keep_gone", keep_gone)
    waiting = {"status": OperationState.WAITING_RETRY}
    for age in (1, 8, 9):
        name, old = f"op-{age}", timedelta(days=age)
        held = [
            (OperationList.ALL, entry(name, old, correlation_id="c")),
            (OperationList.FAILED, entry(name, old, **waiting)),
        ]
        await write_entries(name, held)
    for name in ("op-waits", "op-gone"):
        await write_entries(name, [(OperationList.FAILED, entry(name, timedelta(days=8), **waiting))])
    for expected in (5, 0):  # Two of all, and three of those that failed beside the one that stays.
        past = Past(hub=TaskHub(""), now=NOON, before=NOON - timedelta(days=7))
        shards = [replace(past, shard=shard) for shard in range(PARTS_OF_OPERATIONS)]
        removed = sum([number for each in shards async for number in remove_old("", each)])
        assert removed == expected + (expected > 0)
    assert removed_records == ["op-8", "op-9"]
    assert kept == ["op-gone"]
    assert purged == ["op-8"]  # The record of the other one still needs its history.
    assert await listed() == ["op-1"]
    assert await listed(OperationList.FAILED) == ["op-1", "op-waits"]
    assert (await ids_of_name("c", limit=5, cursor=None))[0] == ["op-1"]
    assert (len(account.rows(TABLE)), len(account.rows(NAMES_TABLE))) == (3, 1)


def an_instance(operation_id: str) -> Instance:
    """An operation that ended a day ago; `op-waits` has not."""
    operation = an_operation(operation_id=operation_id)
    return instance_of(operation, None if operation_id == "op-waits" else timedelta(days=1))
