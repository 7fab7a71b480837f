from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import AsyncMock, Mock

import pytest
from azure.core.exceptions import ServiceRequestError

from durable_retry.base.errors import (
    InstanceEndedError,
    TaskHubUnavailableError,
    WrongOperationStateError,
)
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.features.in_process.operations import Operations
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations import actions as operations
from durable_retry.operations.routes import (
    cancel_operation,
    pause_operation,
    resume_operation,
    retry_operation_now,
    try_operation,
)
from durable_retry.rules.config.dependency import Targets
from durable_retry.rules.facts import ActedOn
from durable_retry.rules.retry.policy import RetryPolicy
from durable_retry.telemetry import facts
from durable_retry_console.bulk import items
from durable_retry_console.bulk.document import BulkItem, ItemOutcome
from durable_retry_console.bulk.items import do_some
from durable_retry_console.bulk.shapes import BatchInput, BulkAction
from tests.support.builders import NOON, PAYMENTS, an_operation
from tests.support.http import call

HUB = TaskHub("{}")

WAITING = {
    "operation_id": "op-1",
    "key": "order-7",
    "dependency": "payments",
    "status": "waiting_retry",
    "attempt_count": 2,
}
RUNNING = WAITING | {"status": "running"}
DONE = WAITING | {"status": "succeeded"}

FINISHED = "the operation is finished and cannot be cancelled: its status is succeeded"
NOT_WAITING = "the operation is not waiting: its status is running"


class Hub:
    """One operation, and the events that it gets."""

    def __init__(self) -> None:
        self.document: dict[str, Any] | None = WAITING
        self.raised: list[tuple[str, str, object]] = []
        self.ended_meanwhile = False
        self.acted_on: list[ActedOn] = []

    async def find_status(self, _hub: TaskHub, _operation_id: str) -> dict[str, Any] | None:
        return self.document

    async def raise_event(self, operation_id: str, event: str, data: object) -> None:
        if self.ended_meanwhile:
            raise InstanceEndedError
        self.raised.append((operation_id, event, data))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    monkeypatch.setattr(operations, "find_status", hub.find_status)
    monkeypatch.setattr(items, "find_status", hub.find_status)
    monkeypatch.setattr(TaskHub, "raise_event", hub.raise_event)
    monkeypatch.setattr(facts, "_receivers", {ActedOn: [hub.acted_on.append]})
    return hub


async def bulk(action: BulkAction, **options: Any) -> BulkItem:
    given = BatchInput(action_id="bulk-1", action=action, ids=("op-1",), by="ada", now=NOON, options=options)
    (item,) = await do_some(HUB, given)
    return item


async def test_what_one_item_raises_fails_that_item_alone(hub: Hub) -> None:
    hub.document = {"operation_id": "op-1", "status": "paused"}  # without what resuming it reads
    item = await bulk(BulkAction.RESUME)
    assert (item.outcome, item.detail) == (ItemOutcome.FAILED, "KeyError: 'actions'")


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("error", [TaskHubUnavailableError("away"), ServiceRequestError("away"), OSError()])
async def test_trouble_that_passes_has_the_whole_batch_done_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskHub, "raise_event", AsyncMock(side_effect=error))
    with pytest.raises(type(error)):
        await bulk(BulkAction.CANCEL)


async def test_a_retry_now_names_the_attempt_that_the_operation_waits_for(hub: Hub) -> None:
    await operations.retry_now(HUB, "op-1", by="ada")
    assert hub.raised == [("op-1", "retry_now", {"attempt": 3, "by": "ada"})]


async def test_what_its_dependency_works_on_is_asked_for_now_and_what_runs_here_is_not(hub: Hub) -> None:
    hub.document = {**WAITING, "status": "running", "next_attempt_at": "2026-11-21T12:00:05Z"}
    await operations.retry_now(HUB, "op-1", by="ada")
    assert [event for _, event, _ in hub.raised] == ["retry_now"]
    for status, due_at in (("running", None), ("paused", "2026-11-21T12:00:05Z")):
        hub.document = {**WAITING, "status": status, "next_attempt_at": due_at}
        with pytest.raises(WrongOperationStateError, match="is not waiting"):
            await operations.retry_now(HUB, "op-1", by="ada")


async def test_one_attempt_past_the_circuit_names_its_attempt_and_its_reason(hub: Hub) -> None:
    hub.document = {**WAITING, "status": "waiting_circuit"}
    await call(try_operation, TaskHub("{}"), operation_id="op-1", body={"reason": "it is back"})
    (sent,) = hub.raised
    assert sent[1:] == ("try", {"attempt": 3, "by": None, "reason": "it is back"})


async def test_what_no_circuit_holds_up_is_not_tried(hub: Hub) -> None:
    answer = await call(try_operation, TaskHub("{}"), operation_id="op-1", body={"reason": "it is back"})
    assert (answer.status, hub.raised) == (409, [])
    assert answer.body["detail"] == "The operation does not wait for a circuit: its status is waiting_retry."


@pytest.mark.parametrize("act", [operations.cancel, operations.retry_now])
async def test_what_was_asked_of_an_operation_is_reported_once(hub: Hub, act: Any) -> None:
    await act(HUB, "op-1", by="ada")
    assert hub.acted_on == [ActedOn(WAITING, act.__name__, "ada")]


@pytest.mark.parametrize("act", [operations.cancel, operations.retry_now])
async def test_what_ended_meanwhile_is_neither_acted_on_nor_reported(hub: Hub, act: Any) -> None:
    hub.ended_meanwhile = True
    with pytest.raises(WrongOperationStateError, match="the operation has ended meanwhile"):
        await act(HUB, "op-1", by=None)
    assert hub.acted_on == []


async def test_every_way_to_cancel_sends_and_reports_the_same(hub: Hub) -> None:
    assert await Operations("{}").cancel("op-1")
    assert (await bulk(BulkAction.CANCEL)).detail is None
    await call(cancel_operation, TaskHub("{}"), operation_id="op-1")
    assert [event for _, event, _ in hub.raised] == ["cancel"] * 3
    assert [fact.action for fact in hub.acted_on] == ["cancel"] * 3


async def test_every_way_to_cancel_refuses_what_has_ended_for_the_same_reason(hub: Hub) -> None:
    hub.document = DONE
    assert not await Operations("{}").cancel("op-1")
    assert (await bulk(BulkAction.CANCEL)).detail == FINISHED
    answer = await call(cancel_operation, TaskHub("{}"), operation_id="op-1")
    assert (answer.status, answer.body["detail"]) == (409, f"T{FINISHED[1:]}.")


async def test_every_way_to_retry_now_refuses_what_does_not_wait_for_the_same_reason(hub: Hub) -> None:
    hub.document = RUNNING
    assert (await bulk(BulkAction.RETRY_NOW)).detail == NOT_WAITING
    answer = await call(retry_operation_now, TaskHub("{}"), operation_id="op-1")
    assert (answer.status, answer.body["detail"]) == (409, f"T{NOT_WAITING[1:]}.")


async def test_many_are_paused_as_one_is(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable_retry.operations.actions.clock.now", lambda: NOON)
    assert (await bulk(BulkAction.PAUSE, reason="moving", for_seconds=60.0)).detail is None
    body = {"reason": "moving", "for_seconds": 60}
    await call(pause_operation, TaskHub("{}"), body, operation_id="op-1")
    (_, _, of_many), (_, _, of_one) = hub.raised
    assert of_many == {
        "by": "ada",
        "asked_at": to_rfc3339(NOON),
        "reason": "moving",
        "for_seconds": 60.0,
        "stops_deadline": False,
    }
    assert isinstance(of_one, dict)
    assert of_one | {"by": "ada"} == of_many


async def test_many_are_resumed_and_one_that_is_not_paused_is_left_alone(hub: Hub) -> None:
    assert (
        await bulk(BulkAction.RESUME)
    ).detail == "the operation is not paused: its status is waiting_retry"
    paused = {"action": "pause", "at": to_rfc3339(NOON), "by": "bob"}
    hub.document = WAITING | {"status": "paused", "actions": [paused]}
    assert (await bulk(BulkAction.RESUME)).detail is None
    assert hub.raised == [("op-1", "resume", {"paused_at": to_rfc3339(NOON), "by": "ada"})]


PAUSED: Final = WAITING | {
    "status": "paused",
    "dependency": "payments",
    "actions": [{"action": "pause", "at": to_rfc3339(NOON), "by": "bob"}],
}
CHANGED: Final = {"retry": {"max_attempts": 3}, "priority": "high"}


@pytest.fixture
def changeable(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The operation, paused, with what it was accepted with."""
    hub.document = PAUSED
    instance = SimpleNamespace(input={"operation": an_operation().to_json()})
    monkeypatch.setattr(TaskHub, "read_instance", AsyncMock(return_value=instance))
    handler = Mock(limits_at=lambda dependency: replace(dependency, retry=RetryPolicy(max_attempts=2)))
    known = Targets({"payments": PAYMENTS}, {"charge": handler}, ())
    monkeypatch.setattr(operations, "targets", lambda: known)
    return hub


async def test_one_and_many_are_changed_alike_when_they_go_on(changeable: Hub) -> None:
    answer = await call(resume_operation, TaskHub("{}"), CHANGED | {"reason": "back"}, operation_id="op-1")
    assert answer.status == 202
    assert (await bulk(BulkAction.RESUME, reason="back", **CHANGED)).detail is None
    (_, event, of_one), (_, _, of_many) = changeable.raised
    assert event == "resume"
    assert of_one == {
        "paused_at": to_rfc3339(NOON),
        "by": None,
        "reason": "back",
        "change": {**CHANGED, "limits": PAYMENTS.retry.to_json()},
    }
    assert of_many == of_one | {"by": "ada"}
    assert [fact.priority for fact in changeable.acted_on] == ["high", "high"]


async def test_a_change_at_once_is_one_event(changeable: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable_retry.operations.actions.clock.now", lambda: NOON)
    changeable.document = PAUSED | {"status": "waiting_retry"}
    body = {"at_once": True, "deadline_seconds": 0}
    assert (await call(resume_operation, TaskHub("{}"), body, operation_id="op-1")).status == 202
    change = {"at_once": True, "asked_at": to_rfc3339(NOON), "by": None, "change": {"deadline_seconds": 0.0}}
    assert changeable.raised == [("op-1", "pause", change)]
    assert [fact.action for fact in changeable.acted_on] == ["resume"]


@pytest.mark.parametrize(("status", "body"), [("running", {}), ("succeeded", {"at_once": True})])
async def test_what_is_not_paused_is_changed_at_once_alone_and_what_ended_never(
    changeable: Hub, status: str, body: dict[str, Any]
) -> None:
    changeable.document = PAUSED | {"status": status}
    answer = await call(resume_operation, TaskHub("{}"), body, operation_id="op-1")
    assert (answer.status, changeable.raised) == (409, [])
    assert answer.body["detail"] == f"The operation is not paused: its status is {status}."


@pytest.mark.parametrize(
    ("more", "retry", "pointers"),
    [
        ({}, {"max_attempts": 6, "respect_retry_after": False}, ["max_attempts", "respect_retry_after"]),
        ({}, {"strategy": "schedule"}, ["schedule_seconds"]),
        ({}, {"max_attempts": 0, "jitter": "some"}, ["max_attempts", "jitter"]),
        ({"handler": "charge"}, {"max_attempts": 3}, ["max_attempts"]),
    ],
)
async def test_a_policy_that_it_may_not_have_is_refused_and_nothing_is_sent(
    changeable: Hub, more: dict[str, Any], retry: dict[str, Any], pointers: list[str]
) -> None:
    changeable.document = PAUSED | more
    body = {"retry": retry, "priority": "high"}
    answer = await call(resume_operation, TaskHub("{}"), body, operation_id="op-1")
    assert (answer.status, changeable.raised) == (400, [])
    assert [error["pointer"] for error in answer.body["errors"]] == [f"/retry/{name}" for name in pointers]


async def test_what_is_not_configured_any_more_has_no_limits_for_a_policy(changeable: Hub) -> None:
    for gone in ({"dependency": "gone"}, {"handler": "gone"}):
        changeable.document = PAUSED | gone
        answer = await call(resume_operation, TaskHub("{}"), CHANGED, operation_id="op-1")
        ((pointer, detail),) = ((each["pointer"], each["detail"]) for each in answer.body["errors"])
        assert (answer.status, pointer) == (400, "/retry")
        assert "has the name gone" in detail
    assert (await call(resume_operation, TaskHub("{}"), None, operation_id="op-1")).status == 202


async def test_a_batch_that_runs_again_counts_what_it_has_paused_before(hub: Hub) -> None:
    paused = {"action": "pause", "at": to_rfc3339(NOON), "by": "ada"}
    hub.document = WAITING | {"status": "paused", "actions": [paused]}
    assert (await bulk(BulkAction.PAUSE)).outcome is ItemOutcome.DONE
    hub.document = WAITING | {"status": "paused", "actions": [paused | {"by": "bob"}]}
    item = await bulk(BulkAction.PAUSE)
    assert (item.outcome, item.detail) == (
        ItemOutcome.SKIPPED,
        "the operation is paused already: its status is paused",
    )


async def test_an_operation_that_is_not_there_is_refused_by_every_way_in(hub: Hub) -> None:
    hub.document = None
    assert not await Operations("{}").cancel("op-1")
    assert (await bulk(BulkAction.CANCEL)).detail == "there is no such operation"
    assert (await call(cancel_operation, TaskHub("{}"), operation_id="op-1")).status == 404
