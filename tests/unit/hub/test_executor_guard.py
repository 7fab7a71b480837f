"""What the SDK's executor does not survive, and custom statuses, of small orchestrators in a host's turns."""

import json
from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any

import pytest
from durabletask import task
from durabletask.entities import EntityInstanceId
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.hub.executor_guard import show_at_end
from tests.support.builders import NOON
from tests.support.executor import Instance, Orchestrator, end_of
from tests.support.stage import dead_answer

DIED = "Invocation of function 'counter' failed with an exception."
ENTITY = EntityInstanceId("counter", "a")


def sent_to(entity_id: str, request_id: str, number: int) -> pb.HistoryEvent:
    """What Azure's history has of a message to an entity."""
    body = pb.EventSentEvent(
        instanceId=entity_id, name="op", input=helpers.get_string_value(json.dumps({"id": request_id}))
    )
    return pb.HistoryEvent(eventId=number, eventSent=body)


def caught(yielded: Callable[[task.OrchestrationContext], Any]) -> Orchestrator:
    """Return an orchestrator that waits for one thing, and returns it or the failure that it caught."""

    def orchestrator(ctx: task.OrchestrationContext, _input: Any) -> Generator[Any, Any, Any]:
        try:
            return (yield yielded(ctx))
        except task.TaskFailedError as error:
            return {"caught": error.details.message}

    return orchestrator


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (dead_answer("counter"), {"caught": DIED}),
        ({"result": DIED}, {"caught": json.dumps({"result": DIED})}),
        ({"result": DIED, "exceptionType": "x"}, {"caught": DIED}),
        (DIED, {"caught": DIED}),
        ("[" * 9_000, {"caught": "[" * 9_000}),
        ([], {"caught": "[]"}),
        ({}, {"caught": "{}"}),
        ({"result": "5"}, 5),
        ({"result": None}, None),
        ({"result": '"no"', "exceptionType": "ValueError"}, {"caught": "no"}),
    ],
    ids=lambda each: json.dumps(each)[:30],
)
@pytest.mark.shows("P9")
def test_an_answer_of_an_entity_that_is_text_is_the_failure_of_that_call(answer: Any, end: Any) -> None:
    instance = Instance(caught(lambda ctx: ctx.call_entity(ENTITY, "add", 1)))
    (action,) = instance.begin()
    request_id = action.sendEntityMessage.entityOperationCalled.requestId
    instance.past.append(sent_to("@counter@a", request_id, action.id))
    text = answer if isinstance(answer, str) else json.dumps(answer)
    ended = end_of(instance.go_on(helpers.new_event_raised_event(request_id, text)))
    if isinstance(end, dict):
        assert end["caught"] in ended["caught"]
    else:
        assert ended == end


def test_after_a_dead_answer_the_call_is_made_again_and_replays() -> None:
    def orchestrator(ctx: task.OrchestrationContext, _input: Any) -> Generator[Any, Any, Any]:
        for _ in range(2):
            try:
                return (yield ctx.call_entity(ENTITY, "add", 1))
            except task.TaskFailedError:
                continue
        return "gave up"

    instance = Instance(orchestrator)
    (action,) = instance.begin()
    for answer in (dead_answer("counter"), {"result": "7"}):
        request_id = action.sendEntityMessage.entityOperationCalled.requestId
        instance.past.append(sent_to("@counter@a", request_id, action.id))
        actions = instance.go_on(helpers.new_event_raised_event(request_id, json.dumps(answer)))
        action = actions[0]
    assert end_of(actions) == 7


@pytest.mark.parametrize("answer", [json.dumps(dead_answer("counter")), DIED], ids=["marked", "text"])
def test_a_lock_that_was_not_granted_is_a_failure_and_can_be_asked_for_again(answer: str) -> None:
    def orchestrator(ctx: task.OrchestrationContext, _input: Any) -> Generator[Any, Any, Any]:
        try:
            yield ctx.lock_entities([ENTITY])
        except task.TaskFailedError:
            with (yield ctx.lock_entities([ENTITY])):
                return "held"
        return "granted"

    instance = Instance(orchestrator)
    (action,) = instance.begin()
    section = action.sendEntityMessage.entityLockRequested.criticalSectionId
    instance.past.append(sent_to("@counter@a", section, action.id))
    unlock, again = instance.go_on(helpers.new_event_raised_event(section, answer))
    assert unlock.sendEntityMessage.HasField("entityUnlockSent")
    section = again.sendEntityMessage.entityLockRequested.criticalSectionId
    instance.past += [sent_to("@counter@a", section, unlock.id), sent_to("@counter@a", section, again.id)]
    assert end_of(instance.go_on(helpers.new_event_raised_event(section, None))) == "held"


def test_an_activity_whose_result_is_text_has_failed() -> None:
    instance = Instance(caught(lambda ctx: ctx.call_activity("work")))
    (action,) = instance.begin()
    instance.past.append(helpers.new_task_scheduled_event(action.id, "work"))
    ended = end_of(instance.go_on(helpers.new_task_completed_event(action.id, DIED)))
    assert DIED in ended["caught"]


def test_a_child_whose_result_is_text_has_failed() -> None:
    instance = Instance(caught(lambda ctx: ctx.call_sub_orchestrator("child", instance_id="c")))
    (action,) = instance.begin()
    instance.past.append(helpers.new_sub_orchestration_created_event(action.id, "child", "c"))
    ended = end_of(instance.go_on(helpers.new_sub_orchestration_completed_event(action.id, DIED)))
    assert DIED in ended["caught"]


def test_an_entitys_result_that_is_text_has_failed_on_the_present_protocol_too() -> None:
    instance = Instance(caught(lambda ctx: ctx.call_entity(ENTITY, "add", 1)))
    (action,) = instance.begin()
    called = action.sendEntityMessage.entityOperationCalled
    instance.past.append(pb.HistoryEvent(eventId=action.id, entityOperationCalled=called))
    done = pb.EntityOperationCompletedEvent(requestId=called.requestId, output=helpers.get_string_value(DIED))
    ended = end_of(instance.go_on(pb.HistoryEvent(eventId=-1, entityOperationCompleted=done)))
    assert DIED in ended["caught"]


@pytest.mark.parametrize("seconds_early", [1.5, 11.0])
@pytest.mark.shows("P22")
def test_a_timer_of_a_lost_turn_does_not_end_the_wait_of_the_turn_that_runs_again(
    seconds_early: float,
) -> None:
    until = NOON + timedelta(minutes=5)
    instance = Instance(caught(lambda ctx: ctx.create_timer(until)))
    (action,) = instance.begin()
    instance.past.append(helpers.new_timer_created_event(action.id, until))
    stale = helpers.new_timer_fired_event(action.id, until - timedelta(seconds=seconds_early))
    assert instance.go_on(stale) == []
    assert end_of(instance.go_on(helpers.new_timer_fired_event(action.id, until))) is None


def test_an_external_event_that_is_text_arrives_as_a_string_awaited_or_not() -> None:
    def orchestrator(ctx: task.OrchestrationContext, _input: Any) -> Generator[Any, Any, Any]:
        first = yield ctx.wait_for_external_event("awaited")
        second = yield ctx.wait_for_external_event("early")
        return [first, second]

    instance = Instance(orchestrator)
    instance.begin()
    early = helpers.new_event_raised_event("early", "not JSON")
    awaited = helpers.new_event_raised_event("awaited", DIED)
    assert end_of(instance.go_on(early, awaited)) == [DIED, "not JSON"]


def test_an_input_that_is_text_arrives_as_a_string() -> None:
    def orchestrator(ctx: task.OrchestrationContext, input_: Any) -> list[Any]:
        return [ctx.instance_id, input_]

    assert end_of(Instance(orchestrator).begin("not JSON")) == ["id-1", "not JSON"]


def test_the_latest_of_all_statuses_is_made_once_when_a_turn_ends() -> None:
    made: list[str] = []

    def show(ctx: task.OrchestrationContext, text: str) -> None:
        def make() -> str:
            made.append(text)
            return text

        show_at_end(ctx, make)

    def orchestrator(ctx: task.OrchestrationContext, _input: Any) -> Generator[Any, Any, Any]:
        yield ctx.wait_for_external_event("first")
        show(ctx, "replaced in the turn")
        show(ctx, "one")
        yield ctx.wait_for_external_event("second")
        yield ctx.wait_for_external_event("third")
        show(ctx, "two")

    instance = Instance(orchestrator)
    instance.begin()
    shown = [instance.custom_status]
    for name in ("first", "second", "third"):
        instance.go_on(helpers.new_event_raised_event(name))
        shown.append(instance.custom_status)
    # A turn that shows nothing shows what was shown before: a task hub may keep nothing of it.
    assert shown == [None, '"one"', '"one"', '"two"']
    assert made == ["one", "one", "two"]
