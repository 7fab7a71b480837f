"""Upkeep of the index: what processes lost is added."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from durabletask.internal import orchestrator_service_pb2 as pb
from google.protobuf.wrappers_pb2 import StringValue

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import OperationState
from durable_retry.hub.task_hub import HubPage, Selection, TaskHub
from durable_retry.runtime import clock
from durable_retry.storage import clients as storage_clients
from durable_retry.storage.rounds import Round, write_round
from durable_retry_console.index import reconcile
from durable_retry_console.index.reconcile import LOST_AFTER, add_lost
from durable_retry_console.index.store import (
    OperationEntry,
    OperationList,
    buckets,
    gaps,
)
from tests.support.builders import NOON
from tests.support.operation_index import write_entries, write_since
from tests.support.tables import TablesInMemory

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def entry(operation_id: str, age: timedelta, **more: Any) -> OperationEntry:
    given = {"key": "k", "dependency": "payments", "handler": None, "source": "http", "correlation_id": None}
    return OperationEntry(operation_id=operation_id, created_at=NOON - age, **(given | more))


class Hub:
    """A task hub of operations with their ages, their states, and when they changed last.

    Attributes:
        rows: How many instances are on a page.
        page_seconds: How long each takes.
        asked: What was asked for.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ages: dict[str, timedelta] = {}
        self.states: dict[str, str] = {}
        self.changed: dict[str, datetime] = {}
        self.rows, self.page_seconds, self.seconds = 200, 0.001, 0.0
        self.asked: list[Selection] = []
        monkeypatch.setattr(reconcile, "find_status", self.find)
        monkeypatch.setattr(TaskHub, "instance_page", self.page)
        monkeypatch.setattr(clock, "monotonic_seconds", lambda: self.seconds)

    async def page(self, wanted: Selection, token: str | None) -> HubPage[Any]:
        self.asked.append(wanted)
        self.seconds += self.page_seconds
        matching = [name for name, age in self.ages.items() if _is_between(wanted, NOON - age)]
        begin = int(token or 0)
        end = begin + self.rows
        following = str(end) if end < len(matching) else None
        return [self.instance(each) for each in matching[begin:end]], following

    def instance(self, operation_id: str) -> pb.OrchestrationState:
        shown = json.dumps({"status": self.states[operation_id]})
        instance = pb.OrchestrationState(instanceId=operation_id, customStatus=StringValue(value=shown))
        changed_at = self.changed.get(operation_id, NOON - self.ages[operation_id])
        instance.lastUpdatedTimestamp.FromDatetime(changed_at)
        return instance

    async def find(self, _hub: TaskHub, operation_id: str) -> dict[str, Any] | None:
        created_at = to_rfc3339(NOON - self.ages[operation_id])
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

    def add(self, operation_id: str, age: timedelta, state: str = "succeeded") -> None:
        self.ages[operation_id] = age
        self.states[operation_id] = state


def _is_between(wanted: Selection, instant: datetime) -> bool:
    after, before = wanted.created_after, wanted.created_before
    return (after is None or instant >= after) and (before is None or instant < before)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> TablesInMemory:
    account = TablesInMemory()
    monkeypatch.setattr(storage_clients, "table_service", lambda: account)
    monkeypatch.setattr(clock, "now", lambda: NOON)
    return account


@pytest.fixture
async def hub(account: TablesInMemory, monkeypatch: pytest.MonkeyPatch) -> Hub:  # noqa: ARG001 - it is asked first
    """A task hub whose operations were compared with the index half an hour ago, which took a minute."""
    hub = Hub(monkeypatch)
    hub.page_seconds = 30  # One page of the accepted ones, and one of the earlier ones.
    assert await add_lost(TaskHub(""), NOON - HOUR / 2, 90) == 0
    hub.page_seconds, hub.asked = 0.001, []
    return hub


async def listed(kind: OperationList = OperationList.ALL) -> list[str]:
    return [one.operation_id async for _, _, entries in buckets([kind], None) for one in entries]


async def ended(before: datetime) -> list[str]:
    """Return the processes that have ended; the row of this one comes and goes with what it writes."""
    return sorted(name for name in await gaps(before) if name.startswith("gone"))


async def failed() -> dict[str, Any]:
    return {
        each.operation_id: each.status
        async for _, _, entries in buckets([OperationList.FAILED], None)
        for each in entries
    }


async def test_what_an_ended_process_lost_is_added(hub: Hub) -> None:
    hub.add("op-known", 7 * MINUTE)
    hub.add("op-lost", 6 * MINUTE)
    await write_entries("w", [(OperationList.ALL, entry("op-known", 7 * MINUTE))])
    await write_since("lively", NOON)
    assert await add_lost(TaskHub(""), NOON, 20) == 0
    await write_since("gone", NOON - 8 * MINUTE)
    assert await add_lost(TaskHub(""), NOON, 20) == 1
    assert await listed() == ["op-lost", "op-known"]
    assert list(await gaps(NOON + LOST_AFTER)) == ["lively"]


async def test_what_a_process_accepted_after_it_last_announced_itself_is_added(hub: Hub) -> None:
    """It renews its row every half a minute, and was killed just before it would have."""
    announced = LOST_AFTER + timedelta(seconds=1)
    hub.add("op-lost", announced - timedelta(seconds=34), "running")
    await write_since("gone", NOON - announced)
    assert await add_lost(TaskHub(""), NOON, 20) == 1
    assert await listed() == ["op-lost"]


@pytest.mark.shows("W5")
async def test_what_a_process_lost_that_was_killed_while_storage_was_away_is_added(hub: Hub) -> None:
    """It could not announce itself."""
    hub.add("op-lost", 20 * MINUTE)
    hub.add("op-failed", 3 * HOUR, "cancelled")
    hub.changed["op-failed"] = NOON - 20 * MINUTE
    late = NOON + HOUR / 2
    assert await add_lost(TaskHub(""), late - MINUTE, 20) == 0
    assert await add_lost(TaskHub(""), late, 20) == 2
    assert (await listed(), await failed()) == (["op-lost"], {"op-failed": "cancelled"})


async def test_what_just_began_is_left_to_the_next_comparison(hub: Hub) -> None:
    """The process that accepted it is about to write it."""
    await write_since("gone", NOON - 8 * MINUTE)
    hub.add("op-new", timedelta(seconds=5), "running")
    assert await add_lost(TaskHub(""), NOON, 20) == 0
    assert await add_lost(TaskHub(""), NOON + 5 * MINUTE, 20) == 1


async def test_a_comparison_that_was_cheap_is_made_by_each_run(hub: Hub) -> None:
    for number in range(13):
        await add_lost(TaskHub(""), NOON + HOUR + number * 5 * MINUTE, 20)
    assert len(hub.asked) == 2 * 13
    hub.page_seconds, hub.asked = 4.0, []
    for number in range(13):
        await add_lost(TaskHub(""), NOON + 4 * HOUR + number * 5 * MINUTE, 20)
    # Eight seconds are repeated after eight minutes, which the second run to come is.
    assert len(hub.asked) == 2 * 7


@pytest.mark.usefixtures("account")
async def test_what_was_accepted_before_the_first_comparison_is_compared_for_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = Hub(monkeypatch)
    await write_round("comparison", Round("token of another version", to_rfc3339(NOON)))
    hub.add("op-hour", HOUR)
    hub.add("op-day", 24 * HOUR)
    assert await add_lost(TaskHub(""), NOON, 20) == 1
    assert await listed() == ["op-hour"]


STATES = {
    "op-new": "dead_lettered",
    "op-held": "waiting_circuit",
    "op-well": "succeeded",
    "op-behind": "cancelled",
    "op-wrong": "dead_lettered",
    "op-right": "cancelled",
    "op-recovered": "succeeded",
    "op-freed": "succeeded",
    "op-replayed": "succeeded",
    "op-before": "dead_lettered",
}


async def test_a_state_that_an_ended_process_did_not_note_is_added_also_of_what_was_accepted_before(
    hub: Hub,
) -> None:
    accepted = ("op-new", "op-held", "op-well")
    for name, state in STATES.items():
        hub.add(name, 7 * MINUTE if name in accepted else 50 * MINUTE, state)
        hub.changed[name] = NOON - (5 * HOUR if name == "op-before" else 7 * MINUTE)
    held = [(OperationList.ALL, entry(name, hub.ages[name])) for name in STATES]
    noted = {
        "op-wrong": OperationState.WAITING_RETRY,
        "op-right": OperationState.CANCELLED,
        "op-recovered": OperationState.WAITING_RETRY,
        "op-freed": OperationState.WAITING_CIRCUIT,
        "op-replayed": OperationState.DEAD_LETTERED,
    }
    held += [
        (OperationList.FAILED, entry(name, 50 * MINUTE, status=status)) for name, status in noted.items()
    ]
    await write_entries("w", held)
    await write_since("gone", NOON - 8 * MINUTE)
    assert await add_lost(TaskHub(""), NOON, 20) == 6
    assert await failed() == {
        "op-new": "dead_lettered",
        "op-held": "waiting_circuit",
        "op-behind": "cancelled",
        "op-wrong": "dead_lettered",
        "op-right": "cancelled",
        "op-recovered": "succeeded",
        "op-freed": "succeeded",
        "op-replayed": "dead_lettered",  # Of the run before: the list of all has its success.
    }
    assert sorted(await listed()) == sorted(STATES)
    assert not await gaps(NOON)


async def test_reading_all_instances_goes_on_in_the_next_run(hub: Hub) -> None:
    hub.rows = 1
    for number in range(1, 4):
        hub.add(f"op-{number}", 50 * MINUTE, "cancelled")
        hub.changed[f"op-{number}"] = NOON - 2 * MINUTE
    await write_since("gone", NOON - 8 * MINUTE)
    assert await add_lost(TaskHub(""), NOON, 0.0015) == 1
    # What another process loses meanwhile waits for a comparison of its own.
    await write_since("gone-too", NOON - MINUTE)
    late = NOON + 5 * MINUTE
    assert await add_lost(TaskHub(""), late, 0) == 1
    assert await ended(late) == ["gone", "gone-too"]
    assert await add_lost(TaskHub(""), late, 0) == 1
    assert sorted(await failed()) == ["op-1", "op-2", "op-3"]
    assert await ended(late) == ["gone-too"]
    assert await add_lost(TaskHub(""), late, 20) == 0
    assert not await ended(late)


async def test_what_storage_does_not_take_is_compared_again(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that adds it can be killed before storage takes it."""
    hub.add("op-lost", 6 * MINUTE)
    await write_since("gone", NOON - 8 * MINUTE)
    with monkeypatch.context() as away:
        away.setattr(reconcile, "unwritten", object)
        assert await add_lost(TaskHub(""), NOON, 20) == 1
    assert list(await gaps(NOON)) == ["gone"]
    hub.asked = []
    assert await add_lost(TaskHub(""), NOON, 20) == 0
    assert hub.asked
    assert not await gaps(NOON)
