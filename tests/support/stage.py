"""A task hub for one orchestration, in memory and with its own clock.

Every turn runs through the SDK's own executor with the whole history, as in a host: a turn that differs from
its history fails. Entities run through the SDK's own test executor.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from azure.durable_functions.testing import execute_entity
from azure.durable_functions.testing.entity import EntitySignalAction
from azure.durable_functions.worker import DurableFunctionsWorker
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.app import harden_runtime
from durable_retry.base.names import ACQUIRE, CALL_LIMITER
from durable_retry.rules.operations.operation import OperationInput, start_input
from durable_retry.rules.retry.policy import RetryPolicy
from durable_retry.rules.retry.slots import NeedsSlot, SlotRequest
from durable_retry.runtime import clock
from orchestrators.operation import operation as operation_orchestrator
from tests.support import history
from tests.support.builders import NOON, Activities, an_operation
from tests.support.parts import ENTITIES

MAX_TURNS: Final = 20_000

HOLDING: Final = RetryPolicy(
    strategy="fixed",
    initial_seconds=10.0,
    jitter="none",
    max_attempts=2,
    on_exhausted="hold",
    hold_seconds=3600.0,
)
"""What a policy says that holds an operation whose attempts failed."""

LATE: Final = object()
"""The answer of an activity that has none so far: `Stage.answer_task` gives it."""


def dead_answer(entity: str) -> dict[str, Any]:
    """Return what the backend answers to an awaited call when the worker dies that ran the entity's batch.

    So a hub on Azure Storage stored it (extension 3.14.1, DurableTask.Core 3.9.0).
    """
    text = f"Invocation of function '{entity}' failed with an exception."
    details = {
        "ErrorType": "FunctionInvocationFailed",
        "ErrorMessage": text,
        "StackTrace": None,
        "InnerFailure": None,
        "IsNonRetriable": True,
    }
    return {"result": text, "exceptionType": "entity dispatch failed", "failureDetails": details}


def dying(operation: str, times: int) -> Callable[[str], bool]:
    """Return the entity calls that meet a worker that dies: so many of one operation."""
    left = [operation] * times

    def dies(called: str) -> bool:
        if called not in left:
            return False
        left.remove(called)
        return True

    return dies


class Stage:
    """One operation; `run` plays it to its end.

    Attributes:
        states: Of the entities, by name: one of each is enough.
        calls: What was asked of them, by name: operation and input.
        signals: What an entity is to be signalled later: operation and instant.
    """

    def __init__(
        self,
        operation: OperationInput,
        answer: Activities,
        orchestrator: Any = operation_orchestrator,
        needed_slot: NeedsSlot | None = None,
    ) -> None:
        harden_runtime()
        self.operation = operation
        self.answer = answer
        self.orchestrator = orchestrator
        self.now = NOON
        self.past: list[pb.HistoryEvent] = []
        self.inbox: list[history.Event] = []
        self.timers: list[tuple[datetime, int]] = []
        self.custom_status: Any = None
        self.output: Any = None
        self.failure: str | None = None
        self.turns = 0
        self.executions = 0
        self.activities: list[tuple[str, dict[str, Any]]] = []
        self.unanswered: list[int] = []
        self.entity_calls = 0
        self.dead_batches: Callable[[str], bool] = lambda _operation: False
        self.states: defaultdict[str, Any] = defaultdict(lambda: None)
        self.calls: defaultdict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        self.signals: list[tuple[str, datetime | None]] = []
        self.children: list[tuple[str, str, Any]] = []
        self.sent: list[tuple[str, str, Any]] = []
        self.longest_history = 0
        self.whole_seconds = False
        self.before_turn: Callable[[Stage], None] = lambda _stage: None
        self._begin(json.dumps(start_input(operation, "start-1", needed_slot)))

    def run(self) -> Any:
        """Play to the end and return the output."""
        while not self.ended and self.turns < MAX_TURNS:
            if not self.inbox:
                self._fire_next_timer()
            self.turn()
        assert self.failure is None, self.failure
        return self.output

    def run_until_attempt(self, number: int) -> Any:
        """Play until so many executions of the activity `attempt` were answered; return the custom status."""
        while self.made("attempt") < number and self.turns < MAX_TURNS:
            if not self.inbox:
                self._fire_next_timer()
            self.turn()
        return self.run_until_waiting()

    def run_until_waiting(self) -> Any:
        """Play until nothing but time can move the operation on, and return its custom status."""
        while self.inbox and not self.ended:
            self.turn()
        assert self.failure is None, self.failure
        return self.custom_status

    def waiting(self) -> Self:
        """Play until nothing but time can move the operation on."""
        self.run_until_waiting()
        return self

    @property
    def ended(self) -> bool:
        return self.output is not None or self.failure is not None

    def raise_event(self, name: str, data: Any) -> Self:
        self.inbox.append(history.Raised(name, json.dumps(data)))
        return self

    def made(self, activity: str) -> int:
        return sum(name == activity for name, _ in self.activities)

    def request(self) -> pb.OrchestratorRequest:
        """Return what the next turn is given."""
        new = [event.encoded() for event in (history.TurnBegan(self.now), *self.inbox)]
        return pb.OrchestratorRequest(
            instanceId=self.operation.operation_id, pastEvents=self.past, newEvents=new
        )

    def turn(self) -> None:
        """Run one turn and do what it asked for."""
        self.before_turn(self)
        request = self.request()
        encoded = base64.b64encode(request.SerializeToString()).decode()
        answer = DurableFunctionsWorker().execute_orchestration_request(self.orchestrator, encoded)
        turn = history.turn_of(pb.OrchestratorResponse.FromString(base64.b64decode(answer)))
        self.turns += 1
        self.past.extend(request.newEvents)
        self.inbox = []
        self.longest_history = max(self.longest_history, len(self.past))
        if turn.custom_status:
            self.custom_status = json.loads(turn.custom_status)
        for action in turn.actions:
            self._act(action)

    def _begin(self, input_: str, carried: tuple[history.Event, ...] = ()) -> None:
        self.executions += 1
        self.past = []
        self.timers = []  # A timer of an earlier execution is discarded, as hosts do.
        self.inbox = [history.Started("operation", self.operation.operation_id, input_), *carried]

    def _fire_next_timer(self) -> None:
        assert self.timers, "it waits for nothing"
        self.timers.sort()
        fire_at, timer_id = self.timers.pop(0)
        self.now = max(self.now, self._visible_at(fire_at))
        self.inbox.append(history.Fired(timer_id, fire_at.replace(tzinfo=None)))

    def _visible_at(self, fire_at: datetime) -> datetime:
        """Return when a timer fires: on Azure Storage the seconds until then are cut to whole ones."""
        left = (fire_at - self.now).total_seconds()
        return self.now + timedelta(seconds=int(left)) if self.whole_seconds else fire_at

    def _act(self, action: history.Action) -> None:
        if isinstance(action, history.End):
            self._complete(action)
            return
        if isinstance(action, history.CallEntity) and self.dead_batches(action.operation):
            self._answer_as_dead(action)
            return
        self.past.append(action.encoded())
        match action:
            case history.CallActivity():
                self._call_activity(action)
            case history.SetTimer():
                self.timers.append((action.fire_at.replace(tzinfo=UTC), action.number))
            case history.CallEntity():
                self._call_entity(action)
            case history.SignalEntity():
                self.operate(action.entity.split("@")[1], action.operation, json.loads(action.input))
            case history.StartChild():
                self.children.append((action.name, action.instance_id, json.loads(action.input)))
            case history.SendEvent():
                self.sent.append((action.instance_id, action.name, json.loads(action.data)))

    def _call_activity(self, action: history.CallActivity) -> None:
        given = json.loads(action.input)
        self.activities.append((action.name, given))
        answer = self.answer(action.name, given)
        if answer is LATE:
            self.unanswered.append(action.number)
        else:
            self.answer_task(action.number, answer)

    def answer_task(self, task_id: int, answer: Any) -> None:
        if isinstance(answer, Exception):
            self.inbox.append(history.Failed(task_id, helpers.new_failure_details(answer)))
        else:
            self.inbox.append(history.Completed(task_id, json.dumps(answer)))

    def _call_entity(self, action: history.CallEntity) -> None:
        self.entity_calls += 1
        name = action.entity.split("@")[1]
        try:
            result = self.operate(name, action.operation, json.loads(action.input))
        except ValueError as error:
            self.inbox.append(history.Refused(action.request_id, helpers.new_failure_details(error)))
        else:
            self.inbox.append(history.Replied(action.request_id, json.dumps(result)))

    def _answer_as_dead(self, action: history.CallEntity) -> None:
        """Answer an entity call as Azure Storage does when the worker dies: nothing of the batch is kept."""
        self.entity_calls += 1
        message = json.dumps({"op": action.operation, "id": action.request_id})
        self.past.append(history.SendEvent(action.number, action.entity, "op", message).encoded())
        self.raise_event(action.request_id, dead_answer(action.entity.split("@")[1]))

    def lend(self, operation: str, settings: dict[str, Any]) -> Any:
        """Let another operation have a slot of the limiter, by its limits; return the answer."""
        request = SlotRequest(f"{operation}:1", 5.0, settings, asked_at=self.now, due_at=self.now)
        answer = self.operate(CALL_LIMITER, ACQUIRE, request.to_json())
        self.calls[CALL_LIMITER].clear()
        return answer

    def operate(self, name: str, operation: str, input_: dict[str, Any]) -> Any:
        """Run one operation of an entity, by this stage's clock, and return its result.

        An orchestration that a lane starts says to this operation that it has its turn.
        """
        self.calls[name].append((operation, input_))
        with clock.reading(lambda: self.now):
            done = execute_entity(
                ENTITIES[name],
                operation,
                input_,
                self.states[name],
                entity_key=self.operation.operation_id,
            )
        self.states[name] = done.get_state()
        for action in done.actions:
            if isinstance(action, EntitySignalAction):
                self.signals.append((action.operation, action.scheduled_time))
            elif name == "order_lane" and action.get_input()["operation_id"] == self.operation.operation_id:
                self.raise_event("turn", {"run": action.get_input()["run"]})
        return done.get_result()

    def _complete(self, end: history.End) -> None:
        if end.status == pb.ORCHESTRATION_STATUS_CONTINUED_AS_NEW:
            self._begin(end.result or "", end.carried)
        elif end.status == pb.ORCHESTRATION_STATUS_COMPLETED:
            self.output = json.loads(end.result or "null")
        else:
            self.failure = end.failure


def held(answer: Activities, **changes: Any) -> Stage:
    """Play an operation until its policy holds it."""
    stage = Stage(an_operation(**{"policy": HOLDING, **changes}), answer)
    while not stage.ended and (stage.custom_status or {}).get("status") != "paused":
        if not stage.inbox:
            stage._fire_next_timer()
        stage.turn()
    assert stage.custom_status["status"] == "paused", stage.output
    return stage


def resume(stage: Stage, **more: Any) -> None:
    paused_at = stage.custom_status["actions"][-1]["at"]
    stage.raise_event("resume", {"paused_at": paused_at, "by": "ada", **more})
