"""What a history holds and what a turn asks for, as plain objects and as the platform's messages.

An action of a turn is an event of the history from then on. Worlds of thousands of turns handle the plain
form; the platform's form is made for the turns that run in the SDK's own executor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import override

from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb


class Event:
    """One event of a history; `encoded` is made once."""

    __slots__ = ("_encoded",)

    def encoded(self) -> pb.HistoryEvent:
        try:
            return self._encoded
        except AttributeError:
            self._encoded: pb.HistoryEvent = self._encode()
            return self._encoded

    def _encode(self) -> pb.HistoryEvent:
        raise NotImplementedError


@dataclass(slots=True)
class TurnBegan(Event):
    """A turn began at an instant, by its worker's clock."""

    at: datetime

    @override
    def _encode(self) -> pb.HistoryEvent:
        return helpers.new_orchestrator_started_event(self.at)


@dataclass(slots=True)
class Started(Event):
    """The execution was started, with an input as JSON."""

    name: str
    instance_id: str
    input: str
    execution: str = ""

    @override
    def _encode(self) -> pb.HistoryEvent:
        event = helpers.new_execution_started_event(self.name, self.instance_id, self.input)
        event.executionStarted.orchestrationInstance.executionId.value = self.execution
        return event


@dataclass(slots=True)
class Completed(Event):
    """An activity returned JSON."""

    number: int
    result: str

    @override
    def _encode(self) -> pb.HistoryEvent:
        return helpers.new_task_completed_event(self.number, self.result)


@dataclass(slots=True)
class Failed(Event):
    """An activity raised."""

    number: int
    details: pb.TaskFailureDetails

    @override
    def _encode(self) -> pb.HistoryEvent:
        failed = pb.TaskFailedEvent(taskScheduledId=self.number, failureDetails=self.details)
        return pb.HistoryEvent(eventId=-1, taskFailed=failed)


@dataclass(slots=True)
class Fired(Event):
    """A timer fired; `fire_at` is naive UTC."""

    number: int
    fire_at: datetime

    @override
    def _encode(self) -> pb.HistoryEvent:
        return helpers.new_timer_fired_event(self.number, self.fire_at)


@dataclass(slots=True)
class Replied(Event):
    """An entity returned JSON."""

    request_id: str
    output: str

    @override
    def _encode(self) -> pb.HistoryEvent:
        output = helpers.get_string_value(self.output)
        done = pb.EntityOperationCompletedEvent(requestId=self.request_id, output=output)
        return pb.HistoryEvent(eventId=-1, entityOperationCompleted=done)


@dataclass(slots=True)
class Refused(Event):
    """An entity raised."""

    request_id: str
    details: pb.TaskFailureDetails

    @override
    def _encode(self) -> pb.HistoryEvent:
        failed = pb.EntityOperationFailedEvent(requestId=self.request_id, failureDetails=self.details)
        return pb.HistoryEvent(eventId=-1, entityOperationFailed=failed)


@dataclass(slots=True)
class Raised(Event):
    """Somebody raised an event, with JSON or nothing."""

    name: str
    data: str | None

    @override
    def _encode(self) -> pb.HistoryEvent:
        return helpers.new_event_raised_event(self.name, self.data)


@dataclass(slots=True)
class CallActivity(Event):
    number: int
    name: str
    input: str

    @override
    def _encode(self) -> pb.HistoryEvent:
        return helpers.new_task_scheduled_event(self.number, self.name, self.input)


@dataclass(slots=True)
class SetTimer(Event):
    number: int
    fire_at: datetime

    @override
    def _encode(self) -> pb.HistoryEvent:
        return helpers.new_timer_created_event(self.number, self.fire_at)


@dataclass(slots=True)
class _ToEntity(Event):
    """A message that runs an operation of an entity."""

    number: int
    entity: str
    operation: str
    input: str
    request_id: str

    def _message[M](self, kind: Callable[..., M]) -> M:
        return kind(
            requestId=self.request_id,
            operation=self.operation,
            input=helpers.get_string_value(self.input),
            targetInstanceId=helpers.get_string_value(self.entity),
        )


@dataclass(slots=True)
class CallEntity(_ToEntity):
    """Run an operation of an entity and answer."""

    @override
    def _encode(self) -> pb.HistoryEvent:
        called = self._message(pb.EntityOperationCalledEvent)
        return pb.HistoryEvent(eventId=self.number, entityOperationCalled=called)


@dataclass(slots=True)
class SignalEntity(_ToEntity):
    """Run an operation of an entity; nobody waits for it."""

    @override
    def _encode(self) -> pb.HistoryEvent:
        signaled = self._message(pb.EntityOperationSignaledEvent)
        return pb.HistoryEvent(eventId=self.number, entityOperationSignaled=signaled)


@dataclass(slots=True)
class StartChild(Event):
    number: int
    name: str
    instance_id: str
    input: str

    @override
    def _encode(self) -> pb.HistoryEvent:
        return helpers.new_sub_orchestration_created_event(
            self.number, self.name, self.instance_id, self.input
        )


@dataclass(slots=True)
class ChildEnded(Event):
    """Another orchestration that this one started has ended, with a result as JSON."""

    number: int
    result: str | None

    @override
    def _encode(self) -> pb.HistoryEvent:
        return helpers.new_sub_orchestration_completed_event(self.number, self.result)


@dataclass(slots=True)
class SendEvent(Event):
    """Raise an event of another orchestration."""

    number: int
    instance_id: str
    name: str
    data: str

    @override
    def _encode(self) -> pb.HistoryEvent:
        return helpers.new_event_sent_event(self.number, self.instance_id, self.data, name=self.name)


@dataclass(slots=True)
class End:
    """End the execution, or continue as new with `result` as the input and events that nobody took.

    Attributes:
        status: One of the platform's.
        failure: Type and message of what failed it; None when nothing did.
    """

    number: int
    status: int
    result: str | None
    failure: str | None = None
    carried: tuple[Raised, ...] = ()


type Action = CallActivity | SetTimer | CallEntity | SignalEntity | StartChild | SendEvent | End


@dataclass(slots=True)
class Turn:
    """What came of a turn: its actions, and the custom status as JSON."""

    actions: list[Action]
    custom_status: str


def turn_of(response: pb.OrchestratorResponse) -> Turn:
    return Turn([_action(action) for action in response.actions], response.customStatus.value)


def _action(action: pb.OrchestratorAction) -> Action:
    match action.WhichOneof("orchestratorActionType"):
        case "scheduleTask":
            return CallActivity(action.id, action.scheduleTask.name, action.scheduleTask.input.value)
        case "createTimer":
            return SetTimer(action.id, action.createTimer.fireAt.ToDatetime())
        case "sendEntityMessage":
            return _message(action.id, action.sendEntityMessage)
        case "createSubOrchestration":
            child = action.createSubOrchestration
            return StartChild(action.id, child.name, child.instanceId, child.input.value)
        case "sendEvent":
            sent = action.sendEvent
            return SendEvent(action.id, sent.instance.instanceId, sent.name, sent.data.value)
        case "completeOrchestration":
            return _end(action.id, action.completeOrchestration)
        case other:
            raise NotImplementedError(other)


def _message(number: int, message: pb.SendEntityMessageAction) -> CallEntity | SignalEntity:
    if message.HasField("entityOperationSignaled"):
        signaled = message.entityOperationSignaled
        target = signaled.targetInstanceId.value
        return SignalEntity(number, target, signaled.operation, signaled.input.value, signaled.requestId)
    called = message.entityOperationCalled
    return CallEntity(
        number, called.targetInstanceId.value, called.operation, called.input.value, called.requestId
    )


def _end(number: int, done: pb.CompleteOrchestrationAction) -> End:
    failure = f"{done.failureDetails.errorType}: {done.failureDetails.errorMessage}"
    return End(
        number,
        done.orchestrationStatus,
        done.result.value if done.HasField("result") else None,
        failure if done.HasField("failureDetails") else None,
        tuple(
            Raised(
                each.eventRaised.name,
                each.eventRaised.input.value if each.eventRaised.HasField("input") else None,
            )
            for each in done.carryoverEvents
        ),
    )
