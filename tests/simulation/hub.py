"""A task hub in memory, on the world's clock: it delivers what it was given, late, twice and in any order.

Orchestrators and entities run through the SDK's own executors. One turn is one transaction. An activity runs
at least once, on any worker; the answer that comes first counts. Calls of entities are answered once; signals
and events may come twice and overtake each other, which is more than the platform asks of an app.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from azure.durable_functions.testing import execute_entity
from azure.durable_functions.testing.entity import EntitySignalAction
from durabletask.client import OrchestrationStatus
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb

from tests.simulation.turns import Session, Turns
from tests.simulation.world import Execution, World

type Activity = Callable[[dict[str, Any], str], Awaitable[Any]]
"""An activity of the app: its input, and the durable client's binding."""

_REPLAYED: Final = 0.1
"""How many turns of a small world are replayed from the beginning."""


@dataclass
class Instance:
    """One orchestration instance, and its present execution.

    Attributes:
        instance_id: Its id.
        name: Of its orchestrator.
        input: As JSON text, of the present execution.
        created_at: When its present run was started.
        execution: Number of the present execution, among all of the hub's.
        runs: How often it was started.
    """

    instance_id: str
    name: str
    input: str
    created_at: datetime
    updated_at: datetime
    execution: int
    runs: int = 1
    past: list[pb.HistoryEvent] = field(default_factory=list)
    inbox: list[pb.HistoryEvent] = field(default_factory=list)
    status: OrchestrationStatus = OrchestrationStatus.RUNNING
    custom_status: str | None = None
    output: str | None = None
    turn_due: bool = False
    session: Session | None = None

    @property
    def is_running(self) -> bool:
        return self.status is OrchestrationStatus.RUNNING


@dataclass(eq=False)
class Doing:
    """An activity that was scheduled; `done` once it has been answered."""

    instance_id: str
    execution: int
    task_id: int
    name: str
    given: dict[str, Any]
    done: bool = False


@dataclass
class Hub:
    """The task hub.

    Attributes:
        world: Its world.
        orchestrators: By name.
        entities: Classes by name.
        activities: By name.
        on_end: Told of every run that ends.
        on_entity: Told of every operation of an entity: id, operation, input, state before and after.
        under_way: Messages and activities that will still cause something; timers and expiries do not count.
    """

    world: World
    orchestrators: Mapping[str, Any]
    entities: Mapping[str, Any]
    activities: Mapping[str, Activity]
    on_end: Callable[[Instance], None] = lambda _instance: None
    on_entity: Callable[[str, str, Any, Any, Any], None] = lambda *_told: None
    instances: dict[str, Instance] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)
    under_way: int = 0
    _executions: int = 0
    _running: dict[str, list[Doing]] = field(default_factory=dict)
    _turns: Turns = field(init=False)

    def __post_init__(self) -> None:
        self._turns = Turns(self.orchestrators)
        self.world.on_death.append(lambda worker: self._begin_again(worker.name))

    # What clients ask for.

    def start(self, name: str, instance_id: str, input_: str, *, replaces_ended: bool) -> bool:
        """Start an instance; False when there is one that does not give way."""
        known = self.instances.get(instance_id)
        if known is not None and (known.is_running or not replaces_ended):
            return False
        now = self.world.now()
        instance = Instance(instance_id, name, input_, now, now, self._next_execution())
        instance.runs = 1 if known is None else known.runs + 1
        self.instances[instance_id] = instance
        instance.inbox = [helpers.new_execution_started_event(name, instance_id, input_)]
        self._turn_soon(instance)
        return True

    def raise_event(self, instance_id: str, name: str, data: str | None) -> None:
        """Send an event, which may come late, or twice."""
        self._send(lambda: self._event(instance_id, name, data))

    def signal(self, entity: str, operation: str, input_: Any) -> None:
        """Send a signal, which may come late, or twice."""
        self._send(lambda: self._operate(entity, operation, input_))

    def purge(self, ended_before: datetime) -> None:
        """Forget operations that ended long ago, as the app's maintenance has a hub do."""
        old = [
            each.instance_id
            for each in self.instances.values()
            if each.name == "operation" and not each.is_running and each.updated_at < ended_before
        ]
        for instance_id in old:
            del self.instances[instance_id]

    # Messages.

    def _send(self, arrive: Callable[[], object]) -> None:
        for _ in range(2 if self.world.happens(self.world.chances.doubled) else 1):
            self._deliver(self.world.delay_seconds(), arrive)

    def _deliver(self, seconds: float, arrive: Callable[[], object]) -> None:
        self.under_way += 1

        def arrived() -> None:
            self.under_way -= 1
            arrive()

        self.world.later(seconds, arrived)

    def _event(self, instance_id: str, name: str, data: str | None) -> None:
        instance = self.instances.get(instance_id)
        if instance is not None and instance.is_running:
            self._take(instance, helpers.new_event_raised_event(name, data))

    def _take(self, instance: Instance, event: pb.HistoryEvent) -> None:
        instance.inbox.append(event)
        self._turn_soon(instance)

    def _answer(self, instance_id: str, execution: int, event: pb.HistoryEvent) -> None:
        instance = self.instances.get(instance_id)
        if instance is not None and instance.is_running and instance.execution == execution:
            self._take(instance, event)

    # Turns.

    def _turn_soon(self, instance: Instance) -> None:
        if instance.turn_due:
            return
        instance.turn_due = True
        seconds = self.world.rng.uniform(0.001, 0.05)
        self._deliver(seconds, lambda: self._turn(instance))

    def _turn(self, instance: Instance) -> None:
        instance.turn_due = False
        new = [helpers.new_orchestrator_started_event(self.world.now()), *instance.inbox]
        response = self._executed(instance, new)
        if self.world.happens(self.world.chances.turn_lost):
            instance.session = None
            if list(self._replayed(instance, new).actions) != list(response.actions):
                self.world.mistake("a repeated turn differs", instance.instance_id)
            instance.turn_due = True
            self._deliver(self.world.rng.uniform(1, 30), lambda: self._turn(instance))
            return
        instance.past.extend(new)
        instance.inbox = []
        instance.updated_at = self.world.now()
        if response.customStatus.value:
            instance.custom_status = response.customStatus.value
        for action in response.actions:
            self._act(instance, action)

    def _executed(self, instance: Instance, new: list[pb.HistoryEvent]) -> pb.OrchestratorResponse:
        if not self.world.scale.is_small or self.world.happens(_REPLAYED):
            instance.session = None
            return self._replayed(instance, new)
        session = instance.session = instance.session or self._turns.begun(
            instance.name, instance.instance_id
        )
        return self._turns.continued(session, instance.past, new)

    def _replayed(self, instance: Instance, new: list[pb.HistoryEvent]) -> pb.OrchestratorResponse:
        request = pb.OrchestratorRequest(
            instanceId=instance.instance_id, pastEvents=instance.past, newEvents=new
        )
        return self._turns.replayed(instance.name, request)

    def _act(self, instance: Instance, action: pb.OrchestratorAction) -> None:
        match action.WhichOneof("orchestratorActionType"):
            case "scheduleTask":
                self._schedule(instance, action)
            case "createTimer":
                self._set_timer(instance, action)
            case "sendEntityMessage":
                self._message_entity(instance, action)
            case "createSubOrchestration":
                self._start_child(instance, action)
            case "sendEvent":
                self._send_event(instance, action)
            case "completeOrchestration":
                self._complete(instance, action.completeOrchestration)
            case other:
                raise NotImplementedError(other)

    def _set_timer(self, instance: Instance, action: pb.OrchestratorAction) -> None:
        fire_at = action.createTimer.fireAt.ToDatetime()
        instance.past.append(helpers.new_timer_created_event(action.id, fire_at))
        fired = helpers.new_timer_fired_event(action.id, fire_at)
        seconds = (fire_at.replace(tzinfo=UTC) - self.world.now()).total_seconds()
        late_seconds = self.world.rng.choice((0.001, 0.05, 0.5, 3.0))
        self.world.later(
            max(0.0, seconds) + late_seconds, self._answer, instance.instance_id, instance.execution, fired
        )

    def _start_child(self, instance: Instance, action: pb.OrchestratorAction) -> None:
        child = action.createSubOrchestration
        created = helpers.new_sub_orchestration_created_event(
            action.id, child.name, child.instanceId, child.input.value
        )
        instance.past.append(created)
        # Nobody waits for it here; one of that name that runs already does the same work.
        self._deliver(
            self.world.rng.uniform(0.01, 0.5),
            lambda: self.start(child.name, child.instanceId, child.input.value, replaces_ended=True),
        )

    def _send_event(self, instance: Instance, action: pb.OrchestratorAction) -> None:
        sent = action.sendEvent
        body = pb.EventSentEvent(instanceId=sent.instance.instanceId, name=sent.name, input=sent.data)
        instance.past.append(pb.HistoryEvent(eventId=action.id, eventSent=body))
        self.raise_event(sent.instance.instanceId, sent.name, sent.data.value)

    def _complete(self, instance: Instance, done: pb.CompleteOrchestrationAction) -> None:
        if done.orchestrationStatus == pb.ORCHESTRATION_STATUS_CONTINUED_AS_NEW:
            instance.past, instance.input, instance.session = [], done.result.value, None
            instance.execution = self._next_execution()
            started = helpers.new_execution_started_event(
                instance.name, instance.instance_id, done.result.value
            )
            instance.inbox = [started, *done.carryoverEvents]
            self._turn_soon(instance)
            return
        instance.status = OrchestrationStatus(done.orchestrationStatus)
        instance.output = done.result.value or None
        self.world.note("ends", instance.instance_id, instance.status.name)
        if instance.status is not OrchestrationStatus.COMPLETED:
            told = f"{done.failureDetails.errorType}: {done.failureDetails.errorMessage}"
            self.world.mistake("an orchestration failed", instance.instance_id, told)
        self.on_end(instance)

    # Activities.

    def _schedule(self, instance: Instance, action: pb.OrchestratorAction) -> None:
        name, text = action.scheduleTask.name, action.scheduleTask.input.value
        instance.past.append(helpers.new_task_scheduled_event(action.id, name, text))
        doing = Doing(instance.instance_id, instance.execution, action.id, name, json.loads(text))
        self.under_way += 1
        self._dispatch(doing)

    def _dispatch(self, doing: Doing) -> None:
        """Give an activity to a worker; when none is up, a little later."""
        if doing.done:
            return
        if not self.world.workers:
            self.world.later(1.0, self._dispatch, doing)
            return
        worker = self.world.rng.choice(self.world.workers)
        work = self.activities[doing.name](json.loads(json.dumps(doing.given)), worker.name)
        self._running.setdefault(worker.name, []).append(doing)
        execution = Execution(doing.given)
        task = self.world.run(worker, _awaited(work), execution)
        task.add_done_callback(lambda done: self._done(worker.name, doing, done, execution))
        if self.world.happens(self.world.chances.twice):
            self.world.later(self.world.rng.uniform(0.01, 5), self._dispatch_again, doing)

    def _dispatch_again(self, doing: Doing) -> None:
        if any(doing in running for running in self._running.values()):
            self._dispatch(doing)

    def _begin_again(self, worker: str) -> None:
        """Give to others what a dead worker had, once its lease is over."""
        for doing in self._running.pop(worker, []):
            if not any(doing in running for running in self._running.values()):
                self.world.later(self.world.rng.uniform(5, 60), self._dispatch, doing)

    def _done(self, worker: str, doing: Doing, task: "asyncio.Task[Any]", execution: Execution) -> None:
        if task.cancelled() or doing.done or doing not in self._running.get(worker, []):
            return
        doing.done = True
        for running in self._running.values():
            running[:] = [each for each in running if each is not doing]
        self.under_way -= 1
        failure = task.exception()
        execution.counts = failure is None
        event = (
            helpers.new_task_completed_event(doing.task_id, json.dumps(task.result()))
            if failure is None
            else helpers.new_task_failed_event(doing.task_id, _as_exception(failure))
        )
        self._deliver(
            self.world.rng.uniform(0.005, 0.3),
            lambda: self._answer(doing.instance_id, doing.execution, event),
        )

    # Entities.

    def _message_entity(self, instance: Instance, action: pb.OrchestratorAction) -> None:
        message = action.sendEntityMessage
        if message.HasField("entityOperationSignaled"):
            signaled = message.entityOperationSignaled
            instance.past.append(pb.HistoryEvent(eventId=action.id, entityOperationSignaled=signaled))
            input_ = json.loads(signaled.input.value)
            self.signal(signaled.targetInstanceId.value, signaled.operation, input_)
            return
        called = message.entityOperationCalled
        instance.past.append(pb.HistoryEvent(eventId=action.id, entityOperationCalled=called))
        instance_id, execution = instance.instance_id, instance.execution
        seconds = self.world.rng.uniform(0.005, 0.3)
        self._deliver(seconds, lambda: self._call_entity(instance_id, execution, called))

    def _call_entity(self, instance_id: str, execution: int, called: pb.EntityOperationCalledEvent) -> None:
        try:
            result = self._operate(
                called.targetInstanceId.value, called.operation, json.loads(called.input.value)
            )
        except ValueError as error:
            failed = pb.EntityOperationFailedEvent(
                requestId=called.requestId, failureDetails=helpers.new_failure_details(error)
            )
            answer = pb.HistoryEvent(eventId=-1, entityOperationFailed=failed)
        else:
            output = helpers.get_string_value(json.dumps(result))
            done = pb.EntityOperationCompletedEvent(requestId=called.requestId, output=output)
            answer = pb.HistoryEvent(eventId=-1, entityOperationCompleted=done)
        seconds = self.world.rng.uniform(0.005, 0.3)
        self._deliver(seconds, lambda: self._answer(instance_id, execution, answer))

    def _operate(self, entity: str, operation: str, input_: Any) -> Any:
        _, name, key = entity.split("@", 2)
        before = self.states.get(entity)
        done = execute_entity(self.entities[name], operation, input_, before, entity_key=key)
        self.states[entity] = done.get_state()
        self.on_entity(entity, operation, input_, before, self.states[entity])
        for action in done.actions:
            if isinstance(action, EntitySignalAction):
                self._later_signal(action)
        return done.get_result()

    def _later_signal(self, signal: EntitySignalAction) -> None:
        at = signal.scheduled_time
        assert at is not None, "entities here signal only themselves, and only later"
        due = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        seconds = max(0.0, (due - self.world.now()).total_seconds()) + 0.001
        self.world.later(seconds, self._operate, str(signal.entity_id), signal.operation, signal.get_input())

    def _next_execution(self) -> int:
        self._executions += 1
        return self._executions


async def _awaited[T](work: Awaitable[T]) -> T:
    return await work


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
