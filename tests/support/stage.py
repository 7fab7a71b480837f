"""A task hub for one orchestration, in memory and with its own clock.

Every turn runs through the SDK's own executor with the whole history, as in a host: a turn that differs from
its history fails. Entities run through the SDK's own test executor.
"""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from azure.durable_functions.testing import execute_entity
from azure.durable_functions.testing.entity import EntitySignalAction
from azure.durable_functions.worker import DurableFunctionsWorker
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.app import harden_runtime
from durable_retry.rules.operations.operation import OperationInput, start_input
from durable_retry.runtime import clock
from entities.idempotency_record import IdempotencyRecord
from orchestrators.operation import operation as operation_orchestrator
from tests.support.builders import NOON, Activities
from tests.support.parts import ENTITIES

MAX_TURNS: Final = 20_000

LATE: Final = object()
"""The answer of an activity that has none so far: `Stage.answer_task` gives it."""

SHARED: Final = {name: ENTITIES[name] for name in ENTITIES.keys() - {"idempotency_record", "order_lane"}}
"""The entities that operations share, by name."""


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
    """One operation; `run` plays it to its end."""

    def __init__(
        self,
        operation: OperationInput,
        answer: Activities,
        orchestrator: Any = operation_orchestrator,
    ) -> None:
        harden_runtime()
        self.operation = operation
        self.answer = answer
        self.orchestrator = orchestrator
        self.now = NOON
        self.past: list[pb.HistoryEvent] = []
        self.inbox: list[pb.HistoryEvent] = []
        self.timers: list[tuple[datetime, int]] = []
        self.record: Any = None
        self.custom_status: Any = None
        self.output: Any = None
        self.failure: str | None = None
        self.turns = 0
        self.executions = 0
        self.activities: list[tuple[str, dict[str, Any]]] = []
        self.unanswered: list[int] = []
        self.entity_calls = 0
        self.dead_batches: Callable[[str], bool] = lambda _operation: False
        self.circuit: Any = None
        self.circuit_calls: list[tuple[str, dict[str, Any]]] = []
        self.limiter: Any = None
        self.limiter_calls: list[tuple[str, dict[str, Any]]] = []
        self.lane: Any = None
        self.lane_calls: list[tuple[str, dict[str, Any]]] = []
        self.debounce: Any = None
        self.debounce_calls: list[tuple[str, dict[str, Any]]] = []
        self.signals: list[tuple[str, datetime | None]] = []
        self.children: list[tuple[str, str, Any]] = []
        self.sent: list[tuple[str, str, Any]] = []
        self.longest_history = 0
        self.whole_seconds = False
        self.before_turn: Callable[[Stage], None] = lambda _stage: None
        self._begin(json.dumps(start_input(operation, "start-1")))

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

    @property
    def ended(self) -> bool:
        """Whether the orchestration completed or failed."""
        return self.output is not None or self.failure is not None

    def raise_event(self, name: str, data: Any) -> None:
        """Send an external event."""
        self.inbox.append(helpers.new_event_raised_event(name, json.dumps(data)))

    def made(self, activity: str) -> int:
        """Return how often an activity was called."""
        return sum(name == activity for name, _ in self.activities)

    def request(self) -> pb.OrchestratorRequest:
        """Return what the next turn is given."""
        started = helpers.new_orchestrator_started_event(self.now)
        return pb.OrchestratorRequest(
            instanceId=self.operation.operation_id,
            pastEvents=self.past,
            newEvents=[started, *self.inbox],
        )

    def turn(self) -> None:
        """Run one turn and do what it asked for."""
        self.before_turn(self)
        request = self.request()
        encoded = base64.b64encode(request.SerializeToString()).decode()
        answer = DurableFunctionsWorker().execute_orchestration_request(self.orchestrator, encoded)
        response = pb.OrchestratorResponse.FromString(base64.b64decode(answer))
        self.turns += 1
        self.past.extend(request.newEvents)
        self.inbox = []
        self.longest_history = max(self.longest_history, len(self.past))
        if response.customStatus.value:
            self.custom_status = json.loads(response.customStatus.value)
        for action in response.actions:
            self._act(action)

    def _begin(self, input_: str, carried: tuple[pb.HistoryEvent, ...] = ()) -> None:
        self.executions += 1
        self.past = []
        self.timers = []  # A timer of an earlier execution is discarded, as hosts do.
        started = helpers.new_execution_started_event("operation", self.operation.operation_id, input_)
        self.inbox = [started, *carried]

    def _fire_next_timer(self) -> None:
        assert self.timers, "it waits for nothing"
        self.timers.sort()
        fire_at, timer_id = self.timers.pop(0)
        self.now = max(self.now, self._visible_at(fire_at))
        self.inbox.append(helpers.new_timer_fired_event(timer_id, fire_at.replace(tzinfo=None)))

    def _visible_at(self, fire_at: datetime) -> datetime:
        """Return when a timer fires: on Azure Storage the seconds until then are cut to whole ones."""
        left = (fire_at - self.now).total_seconds()
        return self.now + timedelta(seconds=int(left)) if self.whole_seconds else fire_at

    def _act(self, action: pb.OrchestratorAction) -> None:
        if action.HasField("scheduleTask"):
            self._call_activity(action)
        elif action.HasField("createTimer"):
            fire_at = action.createTimer.fireAt.ToDatetime()
            self.past.append(helpers.new_timer_created_event(action.id, fire_at))
            self.timers.append((fire_at.replace(tzinfo=UTC), action.id))
        elif action.HasField("sendEntityMessage"):
            self._message_entity(action)
        elif action.HasField("createSubOrchestration"):
            self._start_child(action)
        elif action.HasField("sendEvent"):
            self._send_event(action)
        else:
            self._complete(action.completeOrchestration)

    def _call_activity(self, action: pb.OrchestratorAction) -> None:
        name, text = action.scheduleTask.name, action.scheduleTask.input.value
        self.past.append(helpers.new_task_scheduled_event(action.id, name, text))
        given = json.loads(text)
        self.activities.append((name, given))
        answer = self.answer(name, given)
        if answer is LATE:
            self.unanswered.append(action.id)
        else:
            self.answer_task(action.id, answer)

    def answer_task(self, task_id: int, answer: Any) -> None:
        """Answer an activity."""
        if isinstance(answer, Exception):
            self.inbox.append(helpers.new_task_failed_event(task_id, answer))
        else:
            self.inbox.append(helpers.new_task_completed_event(task_id, json.dumps(answer)))

    def _start_child(self, action: pb.OrchestratorAction) -> None:
        child = action.createSubOrchestration
        created = helpers.new_sub_orchestration_created_event(
            action.id, child.name, child.instanceId, child.input.value
        )
        self.past.append(created)
        self.children.append((child.name, child.instanceId, json.loads(child.input.value)))

    def _send_event(self, action: pb.OrchestratorAction) -> None:
        sent = action.sendEvent
        body = pb.EventSentEvent(instanceId=sent.instance.instanceId, name=sent.name, input=sent.data)
        self.past.append(pb.HistoryEvent(eventId=action.id, eventSent=body))
        self.sent.append((sent.instance.instanceId, sent.name, json.loads(sent.data.value)))

    def _message_entity(self, action: pb.OrchestratorAction) -> None:
        message = action.sendEntityMessage
        if message.HasField("entityOperationSignaled"):
            signaled = message.entityOperationSignaled
            self.past.append(pb.HistoryEvent(eventId=action.id, entityOperationSignaled=signaled))
            input_ = json.loads(signaled.input.value)
            if signaled.targetInstanceId.value.startswith(
                ("@call_limiter@", "@circuit_breaker@", "@debounce@")
            ):
                self._run_shared(signaled.targetInstanceId.value, signaled.operation, input_)
            elif signaled.targetInstanceId.value.startswith("@order_lane@"):
                self.tell_lane(signaled.operation, input_)
            else:
                self.signal(signaled.operation, input_)
            return
        called = message.entityOperationCalled
        self.entity_calls += 1
        if self.dead_batches(called.operation):
            self._answer_as_dead(action)
            return
        self.past.append(pb.HistoryEvent(eventId=action.id, entityOperationCalled=called))
        input_ = json.loads(called.input.value)
        entity_id = called.targetInstanceId.value
        try:
            if entity_id.startswith("@order_lane@"):
                result = self.tell_lane(called.operation, input_)
            elif entity_id.split("@")[1] in SHARED:
                result = self._run_shared(entity_id, called.operation, input_)
            else:
                result = self.signal(called.operation, input_)
        except ValueError as error:
            self._fail(called, error)
            return
        completed = pb.EntityOperationCompletedEvent(
            requestId=called.requestId, output=helpers.get_string_value(json.dumps(result))
        )
        self.inbox.append(pb.HistoryEvent(eventId=-1, entityOperationCompleted=completed))

    def _answer_as_dead(self, action: pb.OrchestratorAction) -> None:
        """Answer an entity call as Azure Storage does when the worker dies: nothing of the batch is kept."""
        called = action.sendEntityMessage.entityOperationCalled
        sent = pb.EventSentEvent(
            instanceId=called.targetInstanceId.value,
            name="op",
            input=helpers.get_string_value(json.dumps({"op": called.operation, "id": called.requestId})),
        )
        self.past.append(pb.HistoryEvent(eventId=action.id, eventSent=sent))
        entity = called.targetInstanceId.value.split("@")[1]
        self.inbox.append(helpers.new_event_raised_event(called.requestId, json.dumps(dead_answer(entity))))

    def _run_shared(self, entity_id: str, operation: str, input_: dict[str, Any]) -> Any:
        """Run one operation of a shared entity, by this stage's clock, and return its result."""
        _, name, key = entity_id.split("@")
        here = {"circuit_breaker": "circuit", "call_limiter": "limiter", "debounce": "debounce"}[name]
        getattr(self, f"{here}_calls").append((operation, input_))
        with clock.reading(lambda: self.now):
            done = execute_entity(SHARED[name], operation, input_, getattr(self, here), entity_key=key)
        setattr(self, here, done.get_state())
        return done.get_result()

    def tell_lane(self, operation: str, message: dict[str, Any]) -> Any:
        """Run one operation of the lane of an order key, by this stage's clock, and return its result.

        An orchestration that it starts says to this operation that it has its turn.
        """
        self.lane_calls.append((operation, message))
        with clock.reading(lambda: self.now):
            done = execute_entity(ENTITIES["order_lane"], operation, message, self.lane, entity_key="lane")
        self.lane = done.get_state()
        for started in done.actions:
            given = started.get_input()
            if given["operation_id"] == self.operation.operation_id:
                self.raise_event("turn", {"run": given["run"]})
        return done.get_result()

    def _fail(self, called: pb.EntityOperationCalledEvent, error: ValueError) -> None:
        failed = pb.EntityOperationFailedEvent(
            requestId=called.requestId, failureDetails=helpers.new_failure_details(error)
        )
        self.inbox.append(pb.HistoryEvent(eventId=-1, entityOperationFailed=failed))

    def signal(self, operation: str, input_: Any) -> Any:
        """Run one operation of the record's entity and return its result."""
        done = execute_entity(
            IdempotencyRecord, operation, input_, self.record, entity_key=self.operation.operation_id
        )
        self.record = done.get_state()
        self.signals.append((operation, None))
        self.signals.extend(
            (signal.operation, signal.scheduled_time)
            for signal in done.actions
            if isinstance(signal, EntitySignalAction)
        )
        return done.get_result()

    def _complete(self, done: pb.CompleteOrchestrationAction) -> None:
        if done.orchestrationStatus == pb.ORCHESTRATION_STATUS_CONTINUED_AS_NEW:
            self._begin(done.result.value, tuple(done.carryoverEvents))
        elif done.orchestrationStatus == pb.ORCHESTRATION_STATUS_COMPLETED:
            self.output = json.loads(done.result.value or "null")
        else:
            self.failure = f"{done.failureDetails.errorType}: {done.failureDetails.errorMessage}"
