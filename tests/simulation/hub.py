"""A task hub in memory, on the world's clock: it delivers what it was given, late, twice and in any order.

Orchestrators run as `turns` says. An activity runs at least once, on any worker; the answer that comes first
counts; or its worker dies, and it has failed. Signals, events and calls of entities may come twice, minutes
late, and overtake each other; a worker that dies with an entity loses its signals and fails its calls.

It is no kinder than Azure Storage: a turn's messages may go out while its history does not commit, and the
turn runs again later by another clock; a start looks first and writes later; an event for an ended instance
is refused; a timer may fire a second early; workers disagree about the time. `Chances` says how likely each
is.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zlib import crc32

from durabletask.client import OrchestrationStatus
from durabletask.internal import helpers

from durable_retry.engine.base.names import ATTEMPT
from durable_retry.stores.task_hub import TaskHub
from tests.simulation.entities import Operated, Signal, operate
from tests.simulation.history import (
    Action,
    CallActivity,
    CallEntity,
    Completed,
    End,
    Event,
    Failed,
    Fired,
    Raised,
    Refused,
    Replied,
    SendEvent,
    SetTimer,
    SignalEntity,
    StartChild,
    Started,
    Turn,
    TurnBegan,
)
from tests.simulation.turns import Session, Turns
from tests.simulation.world import START, Execution, World

type Activity = Callable[[dict[str, Any], TaskHub], Awaitable[Any]]
"""An activity of the app: its input, and the durable client's binding."""

type Asker = tuple[str, int]
"""An instance's id, and the number of its execution."""

type Asked = tuple[str, int | str]
"""What an answer is to: an activity by its name and task, a timer by its task, an entity by the request."""

_ABANDONED_SECONDS: Final = 5.0
_KNOWN: Final = ("operation", "delivery")

_TIMER: Final = "timer"
_ENTITY: Final = "entity"

_PURGING: Final = 5
"""One entity in so many is as on a hub that purges none by its id."""

_REPLAYED: Final = 0.01
"""How many turns of a small world the SDK replays from the beginning."""


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
        is_repeated: Whether a turn was made again after its messages had gone out.
        said_to_end_at: When the messages of its last turn first went out; None before.
        is_uncommitted: Whether its last turn's messages went out and its history did not commit.
        awaits: What its history asks for and has no answer to.
        is_crossed: Whether something got the answer of something else; what comes of that, the SDK must say.
    """

    instance_id: str
    name: str
    input: str
    created_at: datetime
    updated_at: datetime
    execution: int
    runs: int = 1
    past: list[Event] = field(default_factory=list)
    inbox: list[Event] = field(default_factory=list)
    status: OrchestrationStatus = OrchestrationStatus.RUNNING
    custom_status: str | None = None
    output: str | None = None
    turn_due: bool = False
    is_repeated: bool = False
    said_to_end_at: datetime | None = None
    is_uncommitted: bool = False
    awaits: set[Asked] = field(default_factory=set)
    session: Session | None = None
    is_crossed: bool = False

    @property
    def asker(self) -> Asker:
        """Its present execution."""
        return self.instance_id, self.execution

    @property
    def is_running(self) -> bool:
        return self.status is OrchestrationStatus.RUNNING


@dataclass(eq=False)
class Doing:
    """An activity that was scheduled with JSON; `done` once it has been answered."""

    asker: Asker
    task_id: int
    name: str
    given: str
    done: bool = False


@dataclass
class Hub:
    """The task hub.

    Attributes:
        world: Its world.
        today: Today's orchestrators.
        last: Those of the last release.
        entities: Classes by name.
        activities: By name.
        on_end: Called for every run that ends.
        on_entity: Called for every operation of an entity.
        on_signal: Called for every signal that is sent: operation and input.
        attempts: All executions of the activity `attempt`.
        under_way: Messages and activities that will still cause something; timers and expiries do not count.
        compared: How many turns were executed twice.
    """

    world: World
    today: Turns
    last: Turns
    entities: Mapping[str, Any]
    activities: Mapping[str, Activity]
    on_end: Callable[[Instance], None] = lambda _instance: None
    on_entity: Callable[[Operated], None] = lambda _operated: None
    on_signal: Callable[[str, Any], None] = lambda *_ignored: None
    instances: dict[str, Instance] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)
    attempts: list[Execution] = field(default_factory=list)
    under_way: int = 0
    compared: int = 0
    _executions: int = 0
    _turn_at: datetime = START
    _running: dict[str, list[Doing]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world.on_death.append(lambda worker: self._begin_again(worker.name))

    # What clients ask for.

    def start(self, name: str, instance_id: str, input_: str, *, replaces_ended: bool) -> bool:
        """Start an instance; False when there is one that does not give way."""
        known = self.instances.get(instance_id)
        if not self.gives_way(instance_id, replaces_ended=replaces_ended):
            return False
        now, input_ = self.world.now(), self._newer(input_)
        if self.world.deploys:
            input_ = _without_form(input_)
        instance = Instance(instance_id, name, input_, now, now, self._next_execution())
        instance.runs = 1 if known is None else known.runs + 1
        self.instances[instance_id] = instance
        instance.inbox = [Started(name, instance_id, input_)]
        self._turn_soon(instance)
        return True

    def gives_way(self, instance_id: str, *, replaces_ended: bool) -> bool:
        """Whether there is no instance of an id, or only one that is replaced."""
        known = self.instances.get(instance_id)
        return known is None or (replaces_ended and not known.is_running)

    def raise_event(self, instance_id: str, name: str, data: str | None) -> bool:
        """Send an event, which may come late, or twice; False when it is refused."""
        known = self.instances.get(instance_id)
        is_running = known is not None and known.is_running
        if not is_running and self.world.happens(self.world.chances.refused):
            return False
        data = None if data is None else self._newer(data)
        self._send(lambda: self._event(instance_id, name, data))
        return True

    def signal(self, entity: str, operation: str, input_: Any, at: datetime | None = None) -> None:
        """Send a signal, which may come late, or twice; at an instant, if one is given."""
        signal = Signal(entity, operation, json.loads(self._newer(json.dumps(input_))), at)
        self.on_signal(operation, input_)
        if at is None:
            self._send(lambda: self._signaled(signal))
            return
        # Nobody waits for an expiry, so no message is under way for a day.
        times = 2 if self.world.happens(self.world.chances.doubled) else 1
        due = max(0.0, (at - self.world.now()).total_seconds()) + 0.001
        for late in (0.0, self.world.delay_seconds())[:times]:
            self.world.later(due + late, self._signaled, signal)

    def ended(self, before: datetime) -> list[str]:
        """Return the operations that ended before an instant."""
        return [
            each.instance_id
            for each in self.instances.values()
            if each.name == "operation" and not each.is_running and each.updated_at < before
        ]

    def purge(self, instance_id: str, ended_before: datetime) -> None:
        """Forget an operation, unless it was started again."""
        if instance_id in self.ended(ended_before):
            del self.instances[instance_id]

    def purge_entity(self, entity: str) -> bool:
        """Forget an entity; False when there is none, and on some hubs, which purge none by their ids."""
        known = entity in self.states
        purges = crc32(entity.encode()) % _PURGING != 0
        return known and purges and self.states.pop(entity, None) is not None

    # Messages.

    def _send(self, arrive: Callable[[], object], doubled: float | None = None) -> None:
        """Let a message arrive: mostly soon, but also late, and sometimes twice.

        Args:
            arrive: What it does.
            doubled: How likely it arrives twice; None means as likely as any message.
        """
        doubled = self.world.chances.doubled if doubled is None else doubled
        for _ in range(2 if self.world.happens(doubled) else 1):
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
            self._take(instance, Raised(name, data))

    def _take(self, instance: Instance, event: Event) -> None:
        instance.inbox.append(event)
        self._turn_soon(instance)

    def _answer(
        self, asker: Asker, asked: Asked, event: Event, taken: Callable[[], None] = lambda: None
    ) -> None:
        """Answer what an execution asked for, once. An answer to what no history holds comes again later.

        The platform compares numbers only: what a lost turn asked for may answer something else.
        """
        known = self.instances.get(asker[0])
        if known is None or not known.is_running or known.asker != asker:
            return
        if asked in known.awaits:
            known.awaits.discard(asked)
            taken()
            self._take(known, event)
        elif _is_of_another(asked, known.awaits):
            known.is_crossed = True
            self._take(known, event)
        elif known.is_uncommitted:
            self._deliver(_ABANDONED_SECONDS, lambda: self._answer(asker, asked, event, taken))

    def _newer(self, text: str) -> str:
        """Return JSON as a later version may have written it, with fields that this one does not have."""
        if not self.world.happens(self.world.chances.newer):
            return text
        value = json.loads(text)
        for known in (value, *(value.get(name) for name in _KNOWN)) if isinstance(value, dict) else ():
            if isinstance(known, dict):
                known["from_a_later_version"] = {"at": 1}
        return json.dumps(value)

    # Turns.

    def _turn_soon(self, instance: Instance) -> None:
        if instance.turn_due:
            return
        instance.turn_due = True
        seconds = self.world.rng.uniform(0.001, 0.05)
        self._deliver(seconds, lambda: self._turn(instance))

    def _turn(self, instance: Instance) -> None:
        instance.turn_due = False
        self._turn_at = self.world.now() + self._skew()
        new = [TurnBegan(self._turn_at), *instance.inbox]
        turn = self._executed(instance, new)
        if self.world.happens(self.world.chances.turn_lost):
            instance.session = None
            self._compare(instance, turn, self._replayed(instance, new))
            self._repeat(instance)
            return
        if self.world.happens(self.world.chances.uncommitted):
            self._send_uncommitted(instance, turn)
            self._repeat(instance)
            return
        instance.is_uncommitted = False
        instance.past.extend(new)
        instance.inbox = []
        instance.updated_at = self.world.now()
        if turn.custom_status:
            instance.custom_status = turn.custom_status
        for action in turn.actions:
            self._act(instance, action)

    def _repeat(self, instance: Instance) -> None:
        instance.turn_due = True
        self._deliver(self.world.rng.uniform(1, 30), lambda: self._turn(instance))

    def _send_uncommitted(self, instance: Instance, turn: Turn) -> None:
        """Do what a turn asks for without a word of it in its instance's history."""
        self.world.note("uncommitted", instance.instance_id)
        instance.session = None
        instance.is_uncommitted = instance.is_repeated = True
        forgotten = replace(instance, past=[], inbox=[], awaits=set())
        for action in turn.actions:
            if not isinstance(action, End):
                self._act(forgotten, action)
            elif OrchestrationStatus(action.status) is OrchestrationStatus.COMPLETED:
                instance.said_to_end_at = instance.said_to_end_at or self.world.now()

    def _skew(self) -> timedelta:
        """Return that of the worker which runs a turn."""
        workers = self.world.workers
        return self.world.rng.choice(workers).skew if workers else timedelta(0)

    def _executed(self, instance: Instance, new: list[Event]) -> Turn:
        if not self.world.scale.is_small or instance.is_crossed:
            return self._replayed(instance, new)
        session = instance.session
        if session is None or session.turns is not self._turns:
            session = instance.session = self._turns.begun(instance.name, instance.instance_id)
        turn = session.continued(instance.past, new)
        if self.world.happens(_REPLAYED):
            self._compare(instance, turn, self._replayed(instance, new))
        return turn

    @property
    def _turns(self) -> Turns:
        return self.last if self.world.is_rolled_back else self.today

    def _replayed(self, instance: Instance, new: list[Event]) -> Turn:
        return self._turns.replayed(instance.name, instance.instance_id, instance.past, new)

    def _compare(self, instance: Instance, one: Turn, other: Turn) -> None:
        self.compared += 1
        if one != other:
            self.world.mistake("a repeated turn differs", instance.instance_id, one, other)

    def _act(self, instance: Instance, action: Action) -> None:
        match action:
            case CallActivity():
                self._schedule(instance, action)
            case SetTimer():
                self._set_timer(instance, action)
            case CallEntity():
                self._ask_entity(instance, action)
            case SignalEntity():
                instance.past.append(action)
                self.signal(action.entity, action.operation, json.loads(action.input))
            case StartChild():
                self._start_child(instance, action)
            case SendEvent():
                instance.past.append(action)
                self.raise_event(action.instance_id, action.name, action.data)
            case End():
                self._complete(instance, action)

    def _set_timer(self, instance: Instance, timer: SetTimer) -> None:
        instance.past.append(timer)
        # The message is hidden for so long by the clock of who sends it.
        seconds = (timer.fire_at.replace(tzinfo=UTC) - self._turn_at).total_seconds()
        seconds += self.world.rng.choice((0.001, 0.05, 0.5, 3.0))
        if self.world.happens(self.world.chances.early):
            seconds -= self.world.rng.uniform(0, 1)
        asked = (_TIMER, timer.number)
        instance.awaits.add(asked)
        fired = Fired(timer.number, timer.fire_at)
        self.world.later(max(0.0, seconds), self._answer, instance.asker, asked, fired)

    def _start_child(self, instance: Instance, child: StartChild) -> None:
        instance.past.append(child)
        # Nobody waits for it here; one of that name that runs already does the same work.
        self._deliver(
            self.world.rng.uniform(0.01, 0.5),
            lambda: self.start(child.name, child.instance_id, child.input, replaces_ended=True),
        )

    def _complete(self, instance: Instance, end: End) -> None:
        status = OrchestrationStatus(end.status)
        if status is OrchestrationStatus.CONTINUED_AS_NEW:
            instance.past, instance.input, instance.session = [], self._newer(end.result or ""), None
            instance.is_crossed = False
            instance.awaits.clear()
            instance.execution = self._next_execution()
            instance.inbox = [Started(instance.name, instance.instance_id, instance.input), *end.carried]
            self._turn_soon(instance)
            return
        instance.status = status
        instance.output = end.result
        self.world.note("ends", instance.instance_id, instance.status.name)
        if instance.status is not OrchestrationStatus.COMPLETED:
            self.world.mistake("an orchestration failed", instance.instance_id, end.failure)
        self.on_end(instance)

    # Activities.

    def _schedule(self, instance: Instance, call: CallActivity) -> None:
        instance.past.append(call)
        instance.awaits.add((call.name, call.number))
        self.under_way += 1
        self._dispatch(Doing(instance.asker, call.number, call.name, self._newer(call.input)))

    def _dispatch(self, doing: Doing) -> None:
        """Give an activity to a worker; when none is up, a little later."""
        if doing.done:
            return
        if not self.world.workers:
            self.world.later(1.0, self._dispatch, doing)
            return
        worker = self.world.rng.choice(self.world.workers)
        given = json.loads(doing.given)
        work = self.activities[doing.name](given, TaskHub(worker.name))
        self._running.setdefault(worker.name, []).append(doing)
        execution = Execution(given)
        if doing.name == ATTEMPT:
            self.attempts.append(execution)
        task = self.world.run(worker, _awaited(work), execution)
        task.add_done_callback(lambda done: self._done(worker.name, doing, done, execution))
        if self.world.happens(self.world.chances.twice):
            self.world.later(self.world.rng.uniform(0.01, 5), self._dispatch_again, doing)

    def _dispatch_again(self, doing: Doing) -> None:
        if any(doing in running for running in self._running.values()):
            self._dispatch(doing)

    def _begin_again(self, worker: str) -> None:
        """Give to others what a dead worker had, once its lease is over; or it has failed, as on Azure."""
        for doing in self._running.pop(worker, []):
            if doing.done or any(doing in running for running in self._running.values()):
                continue  # It ran here twice, or runs elsewhere.
            if self.world.happens(self.world.chances.failed):
                self._end(doing, RuntimeError("the worker died"))
            else:
                self.world.later(self.world.rng.uniform(5, 60), self._dispatch, doing)

    def _done(self, worker: str, doing: Doing, task: "asyncio.Task[Any]", execution: Execution) -> None:
        execution.ended_at = self.world.now()
        failure = None if task.cancelled() else task.exception()
        if task.cancelled() or doing.done or doing not in self._running.get(worker, []):
            return
        if failure is not None:
            self._end(doing, _as_exception(failure))
            return

        def taken() -> None:
            execution.counts = True

        self._end(doing, Completed(doing.task_id, json.dumps(task.result())), taken)

    def _end(
        self, doing: Doing, ended: Completed | Exception, taken: Callable[[], None] = lambda: None
    ) -> None:
        """Answer an activity, once."""
        doing.done = True
        for running in self._running.values():
            running[:] = [each for each in running if each is not doing]
        self.under_way -= 1
        event: Event = (
            Failed(doing.task_id, helpers.new_failure_details(ended))
            if isinstance(ended, Exception)
            else ended
        )
        asked = (doing.name, doing.task_id)
        seconds = self.world.delay_seconds()
        self._deliver(seconds, lambda: self._answer(doing.asker, asked, event, taken))

    # Entities.

    def _ask_entity(self, instance: Instance, call: CallEntity) -> None:
        instance.past.append(call)
        instance.awaits.add((_ENTITY, call.request_id))
        asker = instance.asker
        self._send(lambda: self._call_entity(asker, call), self.world.chances.called_twice)

    def _call_entity(self, asker: Asker, call: CallEntity) -> None:
        before = self.states.get(call.entity)
        answer: Event
        if self.world.happens(self.world.chances.dead_batch):
            answer = Refused(call.request_id, helpers.new_failure_details(RuntimeError("the worker died")))
            self._deliver(0.1, lambda: self._answer(asker, (_ENTITY, call.request_id), answer))
            return
        try:
            result = self._operate(call.entity, call.operation, json.loads(call.input))
        except ValueError as error:
            answer = Refused(call.request_id, helpers.new_failure_details(error))
        else:
            answer = Replied(call.request_id, json.dumps(result))
        seconds = self.world.delay_seconds()
        self._deliver(seconds, lambda: self._answer(asker, (_ENTITY, call.request_id), answer))
        if self.world.happens(self.world.chances.unstored):
            self.states[call.entity] = before
            self._deliver(self.world.rng.uniform(1, 30), lambda: self._call_entity(asker, call))

    def _operate(self, entity: str, operation: str, input_: Any) -> Any:
        before = self.states.get(entity)
        _, name, key = entity.split("@", 2)
        done = operate(self.entities[name], entity, operation, input_, before)
        after = self.states[entity] = json.loads(self._newer(json.dumps(done.state)))
        self.on_entity(Operated(name, key, operation, input_, before, after, done.result))
        for signal in done.signals:
            self.signal(signal.entity, signal.operation, signal.input, signal.at)
        return done.result

    def _signaled(self, signal: Signal) -> None:
        """Run the operation that a signal asks for, unless the worker of its batch dies: then it is lost."""
        if self.world.happens(self.world.chances.dead_batch):
            self.world.note("lost", signal.entity, signal.operation)
            return
        self._operate(signal.entity, signal.operation, signal.input)

    def _next_execution(self) -> int:
        self._executions += 1
        return self._executions


def _is_of_another(asked: Asked, awaits: set[Asked]) -> bool:
    """Whether an answer has the number of what asks for something else."""
    return any(number == asked[1] and name != asked[0] for name, number in awaits)


def _without_form(text: str) -> str:
    """Return an input as the last release writes it."""
    given = json.loads(text)
    given.pop("form", None)
    return json.dumps(given)


async def _awaited[T](work: Awaitable[T]) -> T:
    return await work


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
