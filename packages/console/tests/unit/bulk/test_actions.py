"""The operations that a bulk action would meet, how many these are, and when it takes a signal."""

import json
from typing import Any
from unittest.mock import AsyncMock

import pytest
from durabletask.internal import orchestrator_service_pb2 as pb
from google.protobuf.wrappers_pb2 import StringValue

from durable_retry.base.errors import InstanceEndedError
from durable_retry.base.names import Priority
from durable_retry.hub.task_hub import HubPage, TaskHub
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from durable_retry_console.bulk import actions
from durable_retry_console.bulk.actions import (
    BulkActionStatusError,
    count_matches,
    signal_bulk_action,
    unfinished_page,
)
from durable_retry_console.bulk.document import BulkActionDocument
from durable_retry_console.bulk.names import CANCEL_BULK_EVENT, RESUME_BULK_EVENT
from durable_retry_console.bulk.shapes import BulkAction, BulkInput, BulkProgress, BulkState, UnfinishedFilter
from tests.support.builders import NOON


class Pages:
    """A task hub whose pages have nothing, and a clock that each page moves on by four seconds."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.seconds = 0.0

    async def next(self, *_: object) -> HubPage[Any]:
        self.left, self.seconds = self.left - 1, self.seconds + 4
        return [], "more" if self.left else None


@pytest.mark.parametrize(("pages", "is_complete"), [(2, True), (3, True), (4, False)])
async def test_operations_are_counted_for_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, pages: int, *, is_complete: bool
) -> None:
    hub = Pages(pages)
    monkeypatch.setattr(TaskHub, "instance_page", hub.next)
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: hub.seconds)
    assert await count_matches(TaskHub("hub"), UnfinishedFilter(), ()) == (0, is_complete)


BEGUN: dict[str, dict[str, Any]] = {
    "op-lane": {"order_key": "lane-7", "priority": "low"},
    "op-other": {"order_key": "lane-8", "limit_key": "customer-17", "debounce_key": "stock-3"},
    "op-plain": {},
}
"""Operations whose custom status says what they are, and what it says."""
PENDING = {"op-pending": {"dependency": "payments", "order_key": "lane-7"}}
"""Operations that have not had their first turn: only their input says what they are."""


class Mixed:
    """A task hub with one page: the operations above and a batch; it notes which inputs are read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    async def page(self, *_: object) -> HubPage[Any]:
        shown = {
            name: {"status": "running", "key": name, "dependency": "payments", **more}
            for name, more in BEGUN.items()
        }
        shown |= {name: {} for name in PENDING} | {"batch-1": {"status": "running"}}
        return [_instance(name, status) for name, status in shown.items()], None

    async def find(self, _hub: TaskHub, operation_id: str) -> dict[str, Any] | None:
        self.read.append(operation_id)
        return PENDING.get(operation_id)


def _instance(operation_id: str, status: dict[str, Any]) -> pb.OrchestrationState:
    return pb.OrchestrationState(
        instanceId=operation_id, customStatus=StringValue(value=json.dumps(status) if status else "")
    )


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (UnfinishedFilter(order_key="lane-7"), ["op-lane", "op-pending"]),
        (UnfinishedFilter(order_key="lane-7", priority=Priority.LOW), ["op-lane"]),
        (UnfinishedFilter(priority=Priority.NORMAL), ["op-other", "op-plain", "op-pending"]),
        (UnfinishedFilter(debounce_key="stock-3"), ["op-other"]),
        (UnfinishedFilter(limit_key="customer-17"), ["op-other"]),
        (UnfinishedFilter(dependency="payments", order_key="lane-7"), ["op-lane", "op-pending"]),
        (UnfinishedFilter(dependency="pay", order_key="lane-7"), ["op-lane", "op-pending"]),
        (UnfinishedFilter(dependency="stock", order_key="lane-7"), []),
    ],
)
async def test_operations_are_chosen_by_their_names(
    wanted: UnfinishedFilter, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by the present name of a dependency, and by an earlier one."""
    hub = Mixed()
    monkeypatch.setattr(TaskHub, "instance_page", hub.page)
    monkeypatch.setattr(actions, "find_status", hub.find)
    with using(parse_config('[dependencies.pay]\nbase_url = "http://pay"\nwas = ["payments"]', {})):
        assert await unfinished_page(TaskHub("hub"), wanted, None) == (found, None)
    assert hub.read == ["op-pending", "batch-1"]


def a_document(status: BulkState) -> BulkActionDocument:
    given = BulkInput(
        action_id="bulk-1", action=BulkAction.REPLAY, rate_per_second=5, matched=9, created_at=NOON
    )
    progress = (
        BulkProgress().stopped("why", NOON) if status is BulkState.STOPPED else BulkProgress(status=status)
    )
    return BulkActionDocument.of(given, progress)


@pytest.mark.parametrize(
    ("event", "allowed", "following"),
    [
        (CANCEL_BULK_EVENT, {BulkState.RUNNING, BulkState.STOPPED}, BulkState.CANCELLED),
        (RESUME_BULK_EVENT, {BulkState.STOPPED}, BulkState.RUNNING),
    ],
)
@pytest.mark.parametrize("status", list(BulkState))
async def test_a_status_allows_a_cancel_or_a_resume_whose_answer_says_what_it_leads_to(
    event: str,
    allowed: set[BulkState],
    following: BulkState,
    status: BulkState,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised = AsyncMock()
    monkeypatch.setattr(TaskHub, "raise_event", raised)
    if status in allowed:
        answer = await signal_bulk_action(TaskHub("hub"), a_document(status), event)
        assert answer.status is following
        assert following is not BulkState.RUNNING or answer == a_document(BulkState.RUNNING)
        stopped_at = "2026-11-21T12:00:00Z" if status is BulkState.STOPPED else None
        raised.assert_awaited_once_with("bulk-1", event, {"stopped_at": stopped_at})
    else:
        with pytest.raises(BulkActionStatusError, match=f"the bulk action is {status}"):
            await signal_bulk_action(TaskHub("hub"), a_document(status), event)
        raised.assert_not_awaited()


async def test_what_has_ended_meanwhile_takes_no_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskHub, "raise_event", AsyncMock(side_effect=InstanceEndedError("bulk-1")))
    with pytest.raises(BulkActionStatusError, match="has ended meanwhile"):
        await signal_bulk_action(TaskHub("hub"), a_document(BulkState.STOPPED), RESUME_BULK_EVENT)
