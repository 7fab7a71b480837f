"""A turn: which messages it takes, and what the orchestrator's answer changes. All of it is pure."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb

from onebox.hub import events
from onebox.hub.database import is_entity
from onebox.hub.events import frame_all, framed
from onebox.hub.model import Head, Kind, Message, Parent, Start, Status, tags_from, tags_to


@dataclass(frozen=True, slots=True)
class Post:
    """A message to send; `due_us` as in `Transaction.post`."""

    target: str
    kind: Kind
    events: bytes
    execution_id: str | None = None
    due_us: int | None = None


@dataclass(frozen=True, slots=True)
class NewTask:
    """An activity to schedule."""

    task_id: int
    name: str
    input: str | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The execution is over."""

    output: str | None
    failure: bytes | None


@dataclass(frozen=True, slots=True)
class Renewed:
    """The execution continues as new; `begin` is its first message, with the events carried over."""

    execution_id: str
    version: str | None
    input: str | None
    begin: bytes


@dataclass(frozen=True, slots=True)
class Rewound:
    """The execution goes on from before its failure, with the rewritten history."""

    execution_id: str
    history: bytes
    children: tuple[Start, ...]
    reason: str | None


@dataclass(slots=True)
class Turn:
    """The changes of one turn.

    Attributes:
        status: The instance's status after it.
        history: Framed events to append (or the first of a rewound execution).
        outcome: None while the execution goes on.
    """

    status: Status
    custom_status: str | None = None
    history: bytes = b""
    outcome: Ended | Renewed | Rewound | None = None
    posts: list[Post] = field(default_factory=list)
    tasks: list[NewTask] = field(default_factory=list)
    children: list[Start] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        """Whether the orchestrator failed in this turn."""
        return self.status is Status.FAILED and isinstance(self.outcome, Ended)

    @property
    def failure(self) -> bytes | None:
        """The serialised TaskFailureDetails of its end."""
        return self.outcome.failure if isinstance(self.outcome, Ended) else None


def choose(head: Head, visible: Sequence[Message]) -> list[Message]:
    """Pick the messages that the next turn of an instance takes; empty means it has none to take.

    - An execution begins with its START message, whatever has arrived before that.
    - A rewind is a turn of its own: the SDK requires it.
    - A suspended instance leaves everything where it is until it is resumed or terminated.
    """
    if head.status.is_terminal:
        return []
    if head.turn == 0:
        begin = [message for message in visible if message.kind is Kind.START]
        return begin + [message for message in visible if message.kind is not Kind.START] if begin else []
    rewind = [message for message in visible if message.kind is Kind.REWIND]
    if rewind:
        return rewind[:1]
    if head.status is Status.SUSPENDED and not any(
        message.kind in (Kind.RESUME, Kind.TERMINATE) for message in visible
    ):
        return []
    return list(visible)


def interpret(
    head: Head, taken: Sequence[Message], opening: bytes, response: pb.OrchestratorResponse, now_us: int
) -> Turn:
    """Turn an orchestrator's response into changes.

    Args:
        head: The instance before the turn.
        taken: The messages that the turn took.
        opening: The framed orchestratorStarted event that preceded them.
        response: What the SDK answered.
        now_us: The turn's time.
    """
    mistake = _mistake_in(response)
    valid = response if mistake is None else failed_response(mistake)
    return _Interpreter(head, taken, opening, now_us).read(valid)


def _mistake_in(response: pb.OrchestratorResponse) -> pb.TaskFailureDetails | None:
    """Return why a response cannot be carried out: it fails its orchestration, or would be tried for ever."""
    for action in response.actions:
        kind = action.WhichOneof("orchestratorActionType")
        if kind is None:  # of a later SDK, whose messages this one cannot read
            return events.failure_details(
                "NotSupportedException", "the task hub does not support this action"
            )
        if kind == "createSubOrchestration" and is_entity(action.createSubOrchestration.instanceId):
            child_id = action.createSubOrchestration.instanceId
            return events.failure_details(
                "ArgumentException", f"the id of an orchestration must not begin with '@': '{child_id}'"
            )
    return None


class _Interpreter:
    """Reads one response, action by action."""

    def __init__(self, head: Head, taken: Sequence[Message], opening: bytes, now_us: int) -> None:
        self._head = head
        self._taken = taken
        self._now_us = now_us
        self._turn = Turn(status=_status_after(head, taken))
        self._history = [opening, *(message.events for message in taken)]

    def read(self, response: pb.OrchestratorResponse) -> Turn:
        turn = self._turn
        if response.HasField("customStatus"):
            turn.custom_status = response.customStatus.value
        completion = None
        for action in response.actions:
            kind = action.WhichOneof("orchestratorActionType")
            if kind == "completeOrchestration":
                completion = action.completeOrchestration
            elif kind is not None:
                _READERS[kind](self, action)
        if isinstance(turn.outcome, Rewound):
            return turn
        self._history.append(events.orchestrator_completed(self._now_us))
        if completion is not None:
            self._complete(completion)
        turn.history = b"".join(self._history)
        return turn

    def schedule_task(self, action: pb.OrchestratorAction) -> None:
        task = action.scheduleTask
        body = pb.TaskScheduledEvent(name=task.name)
        _copy_fields(task, body, "version", "input", "parentTraceContext")
        body.tags.update(task.tags)
        self._record(action.id, taskScheduled=body)
        self._turn.tasks.append(NewTask(action.id, task.name, _value(task, "input")))

    def create_timer(self, action: pb.OrchestratorAction) -> None:
        fire_at = action.createTimer.fireAt
        self._record(action.id, timerCreated=pb.TimerCreatedEvent(fireAt=fire_at))
        due_us = events.microseconds(fire_at)
        fired = events.timer_fired(due_us, action.id, fire_at)
        self._post(self._head.id, Kind.RESULT, fired, execution_id=self._head.execution_id, due_us=due_us)

    def create_sub_orchestration(self, action: pb.OrchestratorAction) -> None:
        child = action.createSubOrchestration
        child_id = child.instanceId or f"{self._head.id}:{action.id:04x}"
        body = pb.SubOrchestrationInstanceCreatedEvent(instanceId=child_id, name=child.name)
        _copy_fields(child, body, "version", "input", "parentTraceContext")
        body.tags.update(child.tags)
        self._record(action.id, subOrchestrationInstanceCreated=body)
        trace = child.parentTraceContext.SerializeToString() if child.HasField("parentTraceContext") else None
        self._turn.children.append(
            Start(
                instance_id=child_id,
                name=child.name,
                version=_value(child, "version"),
                input=_value(child, "input"),
                tags=tags_to(child.tags),
                parent=Parent(self._head.id, self._head.execution_id, action.id),
                parent_name=self._head.name,
                trace=trace,
            )
        )

    def send_event(self, action: pb.OrchestratorAction) -> None:
        sent = action.sendEvent
        target, data = sent.instance.instanceId, _value(sent, "data")
        body = pb.EventSentEvent(instanceId=target, name=sent.name, input=events.text(data))
        self._record(action.id, eventSent=body)
        self._post(target, Kind.EVENT, events.event_raised(self._now_us, sent.name, data))

    def send_entity_message(self, action: pb.OrchestratorAction) -> None:
        message = action.sendEntityMessage
        kind = message.WhichOneof("EntityMessageType")
        body = getattr(message, kind)
        self._record(action.id, **{kind: body})
        due_us = None
        is_lock = kind == "entityLockRequested"
        target = body.lockSet[body.position] if is_lock else body.targetInstanceId.value
        if kind == "entityOperationCalled":
            body.parentExecutionId.value = self._head.execution_id
        if kind == "entityOperationSignaled" and body.HasField("scheduledTime"):
            due_us = events.microseconds(body.scheduledTime)
        frame = framed(events.event(self._now_us, **{kind: body}))
        self._post(target, _ENTITY_KINDS[kind], frame, due_us=due_us)

    def rewind_orchestration(self, action: pb.OrchestratorAction) -> None:
        history = list(action.rewindOrchestration.newHistory)
        self._turn.status = Status.RUNNING
        self._turn.outcome = _rewound(self._head, history)

    def _complete(self, action: pb.CompleteOrchestrationAction) -> None:
        status = Status(action.orchestrationStatus)
        if status is Status.CONTINUED_AS_NEW:
            self._turn.outcome = self._renewed(action)
            return
        output = _value(action, "result")
        failure = action.failureDetails if action.HasField("failureDetails") else None
        self._turn.status = status
        self._turn.outcome = Ended(output, None if failure is None else failure.SerializeToString())
        self._history.append(events.execution_completed(self._now_us, status, output, failure))
        parent = self._head.parent
        if parent is not None:
            body = events.child_finished(
                self._now_us, parent.task_id, status, output, self._turn.outcome.failure
            )
            self._post(parent.instance_id, Kind.RESULT, body, execution_id=parent.execution_id)

    def _renewed(self, action: pb.CompleteOrchestrationAction) -> Renewed:
        execution_id = uuid.uuid4().hex
        version = action.newVersion.value if action.HasField("newVersion") else self._head.version
        start = Start(
            instance_id=self._head.id,
            name=self._head.name,
            version=version,
            input=_value(action, "result"),
            parent=self._head.parent,
        )
        tags = tags_from(self._head.tags)
        begin = events.execution_started(start, execution_id, self._now_us, tags)
        begin += frame_all(action.carryoverEvents)
        return Renewed(execution_id, version, start.input, begin)

    def _record(self, event_id: int, **body: Any) -> None:
        self._history.append(framed(events.event(self._now_us, event_id, **body)))

    def _post(
        self,
        target: str,
        kind: Kind,
        frame: bytes,
        *,
        execution_id: str | None = None,
        due_us: int | None = None,
    ) -> None:
        self._turn.posts.append(Post(target, kind, frame, execution_id, due_us))


_ENTITY_KINDS = {
    "entityOperationCalled": Kind.OPERATION,
    "entityOperationSignaled": Kind.OPERATION,
    "entityLockRequested": Kind.LOCK,
    "entityUnlockSent": Kind.UNLOCK,
}

_READERS: dict[str, Callable[[_Interpreter, pb.OrchestratorAction], None]] = {
    "scheduleTask": _Interpreter.schedule_task,
    "createTimer": _Interpreter.create_timer,
    "createSubOrchestration": _Interpreter.create_sub_orchestration,
    "sendEvent": _Interpreter.send_event,
    "sendEntityMessage": _Interpreter.send_entity_message,
    "rewindOrchestration": _Interpreter.rewind_orchestration,
}


def _status_after(head: Head, taken: Sequence[Message]) -> Status:
    """The status of a live instance after these messages: the last suspend or resume decides."""
    status = Status.RUNNING if head.status is Status.PENDING else head.status
    for message in taken:
        if message.kind is Kind.SUSPEND:
            status = Status.SUSPENDED
        elif message.kind is Kind.RESUME:
            status = Status.RUNNING
    return status


def _rewound(head: Head, history: list[pb.HistoryEvent]) -> Rewound:
    """Read from a rewritten history which execution it is, and which children it still waits for."""
    execution_id, reason = head.execution_id, None
    created: dict[int, Start] = {}
    finished: set[int] = set()
    for event in history:
        match event.WhichOneof("eventType"):
            case "executionStarted":
                execution_id = event.executionStarted.orchestrationInstance.executionId.value
            case "subOrchestrationInstanceCreated":
                created[event.eventId] = _child_again(head, event)
            case "subOrchestrationInstanceCompleted":
                finished.add(event.subOrchestrationInstanceCompleted.taskScheduledId)
            case "executionRewound":
                reason = _value(event.executionRewound, "reason")
            case _:
                pass
    children = tuple(
        _child_of(start, execution_id) for task_id, start in created.items() if task_id not in finished
    )
    return Rewound(execution_id, frame_all(history), children, reason)


def _child_again(head: Head, event: pb.HistoryEvent) -> Start:
    body = event.subOrchestrationInstanceCreated
    return Start(
        instance_id=body.instanceId,
        name=body.name,
        version=_value(body, "version"),
        input=_value(body, "input"),
        tags=tags_to(body.tags),
        parent=Parent(head.id, head.execution_id, event.eventId),
        parent_name=head.name,
    )


def _child_of(start: Start, execution_id: str) -> Start:
    """Return the same start under another execution of its parent."""
    assert start.parent is not None  # noqa: S101 - only children come here
    return replace(start, parent=replace(start.parent, execution_id=execution_id))


def failed_response(failure: pb.TaskFailureDetails) -> pb.OrchestratorResponse:
    """Return the response of an orchestrator that could not be run."""
    complete = pb.CompleteOrchestrationAction(
        orchestrationStatus=pb.ORCHESTRATION_STATUS_FAILED, failureDetails=failure
    )
    return pb.OrchestratorResponse(actions=[pb.OrchestratorAction(id=-1, completeOrchestration=complete)])


def _value(message: Any, name: str) -> str | None:
    """A wrapped string field's value; None when it is unset."""
    return getattr(message, name).value if message.HasField(name) else None


def _copy_fields(source: Any, target: Any, *names: str) -> None:
    for name in names:
        if source.HasField(name):
            getattr(target, name).CopyFrom(getattr(source, name))
