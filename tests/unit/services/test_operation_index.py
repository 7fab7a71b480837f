"""Upkeep of the index: what processes lost is added, what is past its time is removed."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from durable_retry import clock
from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.operations.idempotency import Record, RecordState
from durable_retry.services import operation_index
from durable_retry.services.operation_index import LOST_AFTER, add_lost, remove_old, remove_record
from durable_retry.stores import storage_clients
from durable_retry.stores.operation_index import (
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
from durable_retry.stores.operations import OperationPreview
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


@pytest.mark.usefixtures("account")
async def test_what_an_ended_process_lost_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    ages = {"op-known": 7, "op-lost": 6, "op-old": 90}
    asked: list[tuple[Any, Any]] = []

    async def scan(_hub: str, *, created_after: Any, created_before: Any) -> AsyncIterator[OperationPreview]:
        asked.append((created_after, created_before))
        for operation_id in ("op-known", "op-lost"):
            yield OperationPreview(
                operation_id=operation_id,
                created_at=NOON,
                status=None,
                dependency=None,
                key=None,
                attempt_count=0,
                next_attempt_at=None,
            )

    async def find(_hub: str, operation_id: str) -> dict[str, Any]:
        assert operation_id == "op-lost"
        created_at = to_rfc3339(NOON - timedelta(minutes=ages[operation_id]))
        return {
            "operation_id": operation_id,
            "key": "k",
            "dependency": "payments",
            "source": "http",
            "correlation_id": None,
            "status": "succeeded",
            "attempts": [],
            "dead_letter": None,
            "created_at": created_at,
            "updated_at": created_at,
        }

    monkeypatch.setattr(operation_index, "scan_operations", scan)
    monkeypatch.setattr(operation_index, "find_status", find)
    for name in ("op-known", "op-old"):
        await write_entries(name, [(OperationList.ALL, entry(name, timedelta(minutes=ages[name])))])
    await write_since("lively", NOON)
    assert await add_lost("", NOON) == 0
    since = NOON - timedelta(minutes=8)
    await write_since("gone", since)
    assert await add_lost("", NOON) == 1
    assert await listed() == ["op-lost", "op-known", "op-old"]
    assert asked == [(since, NOON - LOST_AFTER)]
    assert list(await gaps(NOON + LOST_AFTER)) == ["lively"]


async def test_what_is_past_its_time_is_removed_but_what_has_not_ended_is_kept(
    account: TablesInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def has_ended(_hub: str, operation_id: str) -> bool:
        return operation_id != "op-waits"

    purged: list[str] = []
    removed_records: list[str] = []

    async def purge_ended(_hub: str, operation_id: str, started_before: datetime) -> bool:
        assert started_before == NOON - timedelta(days=7)
        purged.append(operation_id)
        return True

    async def remove_record(_hub: str, operation_id: str, now: datetime) -> None:
        assert (operation_id in purged, now) == (False, NOON)
        removed_records.append(operation_id)

    monkeypatch.setattr(operation_index, "has_ended", has_ended)
    monkeypatch.setattr(operation_index, "purge_ended", purge_ended)
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
        removed = sum([number async for number in remove_old("", NOON - timedelta(days=7), NOON)])
        assert removed == expected + (expected > 0)
    assert purged == removed_records == ["op-8", "op-9"]
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
        (None, True, []),
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

    async def read_record(_hub: str, operation_id: str) -> Record | None:
        return None if operation_id == "op-none" else record

    async def purge_record(_hub: str, _operation_id: str) -> bool:
        done.append("purge")
        return bool(purges)

    async def expire_record(_hub: str, _operation_id: str, at: datetime) -> None:
        done.append(at)

    for stand_in in (read_record, purge_record, expire_record):
        monkeypatch.setattr(operation_index, stand_in.__name__, stand_in)
    await remove_record("", "op-none", NOON)
    assert not done
    await remove_record("", "op-1", NOON)
    assert done == expected
