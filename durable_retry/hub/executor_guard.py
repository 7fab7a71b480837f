"""Guards around the SDK's orchestration executor, for events that it does not survive, and custom statuses.

An error that the executor raises outside of the orchestrator's generator fails the whole orchestration, which
cannot catch it. These events cause such an error, or worse; on the right is what the guard makes of them:

    an event whose number belongs to a task of another kind now      ignored
    a timer that fires for an earlier instant than was asked for     ignored
    an event whose payload is text where the SDK parses JSON         the failure of the call that it answers;
                                                                     an input or an external event: a string

The last kind and how it comes about: docs/decisions/entity-messages.md.

A feature puts the guards that only the app's own orchestrators need in front of it.

A custom status of `show_at_end` is made once, at the end of a turn: a turn replays every status before it,
and its answer must carry the last one, or Azure Storage keeps none.
"""

import functools
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final
from weakref import WeakKeyDictionary

from durabletask import task
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.worker import _OrchestrationExecutor, _RuntimeOrchestrationContext

from durable_retry.plugins import hook
from durable_retry.runtime.deferred import imported

# Error type of a failure that the platform gave no type.
_UNREADABLE: Final = "UnreadableAnswer"


def guard_executor() -> None:
    """Put the guards in front of the executor; once in a process."""
    process = _OrchestrationExecutor.process_event
    if hasattr(process, "__wrapped__"):
        return

    @functools.wraps(process)
    def process_event(executor: Any, ctx: Any, event: pb.HistoryEvent) -> None:
        kind = event.WhichOneof("eventType")
        if kind in _GUARDED:
            if _is_of_lost_turn(executor, ctx, event, kind):
                return
            event = _readable_event(ctx, event, kind)
        try:
            process(executor, ctx, event)
        except (ValueError, RecursionError):
            # The input is checked only after an error: checked before, it would always be parsed twice.
            if kind != "executionStarted" or _is_json(event.executionStarted.input.value):
                raise
            process(executor, ctx, _with_text(event, kind))

    get_actions = _RuntimeOrchestrationContext.get_actions

    @functools.wraps(get_actions)
    def get_actions_and_status(ctx: Any) -> list[pb.OrchestratorAction]:
        end_turn(ctx)
        return get_actions(ctx)

    executors: Any = _OrchestrationExecutor
    executors.process_event = process_event
    contexts: Any = _RuntimeOrchestrationContext
    contexts.get_actions = get_actions_and_status
    if guard := hook("executor"):
        imported(guard)()


# What makes the custom status of each context when its turn ends.
_status_makers: WeakKeyDictionary[Any, Callable[[], Any]] = WeakKeyDictionary()


def show_at_end(context: Any, make: Callable[[], Any]) -> None:
    """Set the custom status that `make` returns when the turn ends, unless another one is shown by then."""
    _status_makers[getattr(context, "_ctx", context)] = make


def end_turn(context: Any) -> None:
    """Set the custom status that is to be shown when a turn ends."""
    make = _status_makers.pop(context, None)
    if make is not None:
        context.set_custom_status(make())


_ANSWERS: Final = frozenset(
    {
        *("taskCompleted", "taskFailed"),
        *("subOrchestrationInstanceCompleted", "subOrchestrationInstanceFailed"),
    }
)


_GUARDED: Final = _ANSWERS | {"timerFired", "eventRaised", "entityOperationCompleted"}
"""Events that may belong to a lost turn, or be unreadable: less than half of a history."""


_SAME_INSTANT: Final = timedelta(seconds=1)
"""A timer that fires for an instant earlier by less than this is the one that was asked for: a backend may
round instants."""


def _is_of_lost_turn(executor: Any, ctx: Any, event: pb.HistoryEvent, kind: str) -> bool:
    # Azure Storage sends the messages of a turn before it stores the turn's history. When storing fails, the
    # turn runs again and may decide otherwise: one number is then a timer's in the first run and a call's in
    # the second. The platform matches events to tasks by number alone. The SDK notices that the kinds differ
    # only after it removed the task, and the orchestration would wait for ever.
    if kind == "timerFired":
        waiting = ctx._pending_tasks.get(event.timerFired.timerId)
        if not isinstance(waiting, task.TimerTask):
            return waiting is not None
        # The timer of the second run fires as well, for its own instant.
        asked_at, _ = executor._timer_fire_at.get(event.timerFired.timerId, (None, None))
        return asked_at is not None and event.timerFired.fireAt.ToDatetime() < asked_at - _SAME_INSTANT
    if kind in _ANSWERS:
        number = getattr(event, kind).taskScheduledId
        calls = ctx._entity_task_id_map.values()
        is_call_of_entity = any(number == call_number for _, _, call_number in calls)
        return is_call_of_entity or isinstance(ctx._pending_tasks.get(number), task.TimerTask)
    return False


def _readable_event(ctx: Any, event: pb.HistoryEvent, kind: str) -> pb.HistoryEvent:
    """Return an event that the SDK can take: the event itself, or the failure of the call that it answers."""
    match kind:
        case "eventRaised" if event.eventRaised.name in ctx._entity_task_id_map:
            failure = _failure_in_answer(event.eventRaised.input.value)
            return event if failure is None else _failed_call(event, event.eventRaised.name, failure)
        case "eventRaised" if event.eventRaised.name in ctx._entity_lock_task_id_map:
            failure = _failure_in_answer(event.eventRaised.input.value, is_lock=True)
            return event if failure is None else _failed_lock(ctx, event, failure)
        case "eventRaised":
            text = event.eventRaised.input.value
            return event if _is_json(text) else _with_text(event, kind)
        case "taskCompleted" | "subOrchestrationInstanceCompleted" | "entityOperationCompleted":
            answer = getattr(event, kind)
            text = (answer.output if kind == "entityOperationCompleted" else answer.result).value
            return event if _is_json(text) else _FAILED[kind](event, answer, _failure_details(text))
    return event


def _is_json(text: str) -> bool:
    # The SDK takes an empty payload for none.
    try:
        json.loads(text or "null")
    except (ValueError, RecursionError):
        return False
    return True


def _with_text(event: pb.HistoryEvent, kind: str) -> pb.HistoryEvent:
    """Return an event with its input as a string of JSON."""
    changed = pb.HistoryEvent()
    changed.CopyFrom(event)
    payload = getattr(changed, kind).input
    payload.value = json.dumps(payload.value)
    return changed


def _failure_in_answer(text: str, *, is_lock: bool = False) -> pb.TaskFailureDetails | None:
    """Return the failure in an entity's answer; None if it is none, or one that the SDK takes as it is.

    Args:
        text: `{"result": JSON as text}`; of a failure also `exceptionType` or `failureDetails`, and its
            `result` may be plain text: so the backend answers for an entity whose worker died.
        is_lock: Whether it answers the request for a lock. The SDK does not look into such an answer, and
            would go on as if it held the lock.
    """
    try:
        answer = json.loads(text) if text else {"result": None}
    except (ValueError, RecursionError):
        return _failure_details(text)
    if not isinstance(answer, dict):
        return _failure_details(text)
    result = answer.get("result")
    is_readable = isinstance(result, str | None) and _is_json(result or "")
    is_failure = helpers.is_entity_error_response(answer)
    if is_failure and (is_lock or not is_readable):
        return helpers.entity_response_failure_details(answer, result)
    if is_failure or is_lock or (is_readable and "result" in answer):
        return None
    return _failure_details(text)


def _failed_call(event: pb.HistoryEvent, request_id: str, failure: pb.TaskFailureDetails) -> pb.HistoryEvent:
    failed = pb.EntityOperationFailedEvent(requestId=request_id, failureDetails=failure)
    return _event_in_place(event, entityOperationFailed=failed)


def _failed_lock(ctx: Any, event: pb.HistoryEvent, failure: pb.TaskFailureDetails) -> pb.HistoryEvent:
    # The SDK has failures for calls only. Entities that are locked already are unlocked; others ignore that.
    request_id = event.eventRaised.name
    entity_id, number = ctx._entity_lock_task_id_map.pop(request_id)
    ctx._exit_critical_section()
    ctx._entity_context.lock_acquisition_pending = False
    ctx._entity_task_id_map[request_id] = (entity_id, "lock", number)
    return _failed_call(event, request_id, failure)


def _failure_details(text: str) -> pb.TaskFailureDetails:
    return pb.TaskFailureDetails(errorType=_UNREADABLE, errorMessage=text)


def _event_in_place(event: pb.HistoryEvent, **body: Any) -> pb.HistoryEvent:
    return pb.HistoryEvent(eventId=event.eventId, timestamp=event.timestamp, **body)


def _failed_task(event: pb.HistoryEvent, answer: Any, failure: pb.TaskFailureDetails) -> pb.HistoryEvent:
    failed = pb.TaskFailedEvent(taskScheduledId=answer.taskScheduledId, failureDetails=failure)
    return _event_in_place(event, taskFailed=failed)


def _failed_child(event: pb.HistoryEvent, answer: Any, failure: pb.TaskFailureDetails) -> pb.HistoryEvent:
    number = answer.taskScheduledId
    failed = pb.SubOrchestrationInstanceFailedEvent(taskScheduledId=number, failureDetails=failure)
    return _event_in_place(event, subOrchestrationInstanceFailed=failed)


_FAILED: Final[dict[str, Callable[[pb.HistoryEvent, Any, pb.TaskFailureDetails], pb.HistoryEvent]]] = {
    "taskCompleted": _failed_task,
    "subOrchestrationInstanceCompleted": _failed_child,
    "entityOperationCompleted": lambda event, answer, why: _failed_call(event, answer.requestId, why),
}
