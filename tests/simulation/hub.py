"""A task hub in memory, on the world's clock: it delivers what it was given, late, twice and in any order.

Orchestrators run as `turns` says. An activity runs at least once, on any worker; the answer that comes first
counts; or its worker dies, and it has failed. Signals, events and calls of entities may come twice, minutes
late, and overtake each other; a worker that dies with an entity loses its signals and fails its calls.

It is no kinder than Azure Storage: a turn's messages may go out while its history does not commit, and the
turn runs again later by another clock; a start looks first and writes later; an event for an ended instance
is refused; a timer may fire a second early; workers disagree about the time. `Chances` says how likely each
is.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from zlib import crc32

from durabletask.client import OrchestrationStatus
from durabletask.internal import helpers

from durable_retry.base.names import PAUSE_EVENT
from tests.simulation.activities import Activities
from tests.simulation.entities import Operated, Signal, operate
from tests.simulation.messages import Asker, Instance
from tests.simulation.turns import Turns
from tests.simulation.world import START
from tests.support import history

_TIMER: Final = "timer"
_ENTITY: Final = "entity"
_CHILD: Final = "child"

_PURGING: Final = 5
"""One entity in so many is as on a hub that purges none by its id."""

_REPLAYED: Final = 0.01
"""How many turns of a small world the SDK replays from the beginning."""
_PAUSED_TWICE: Final = 0.5
"""How many pauses arrive twice where people are patient."""


@dataclass(kw_only=True)
class Hub(Activities):
    """The task hub.

    Attributes:
        turns: What executes the orchestrators' turns.
        entities: Classes by name.
        on_end: Called for every run that ends.
        on_entity: Called for every operation of an entity.
        on_signal: Called for every signal that is sent: operation and input.
        on_event: Called for every event that is sent: the instance and its name.
        lost: Signals that died with the worker of their batch: entity and operation.
        compared: How many turns were executed twice.
    """

    turns: Turns
    entities: Mapping[str, Any]
    on_end: Callable[[Instance], None] = lambda _instance: None
    on_entity: Callable[[Operated], None] = lambda _operated: None
    on_signal: Callable[[str, Any], None] = lambda *_ignored: None
    on_event: Callable[[str, str], None] = lambda *_ignored: None
    states: dict[str, Any] = field(default_factory=dict)
    lost: list[tuple[str, str]] = field(default_factory=list)
    compared: int = 0
    _executions: int = 0
    _turn_at: datetime = START

    # What clients ask for.

    def start(
        self,
        name: str,
        instance_id: str,
        input_: str,
        *,
        replaces_ended: bool,
        parent: tuple[Asker, int] | None = None,
    ) -> bool:
        """Start an instance; False when there is one that does not give way. A parent gets its output."""
        known = self.instances.get(instance_id)
        if not self.gives_way(instance_id, replaces_ended=replaces_ended):
            return False
        now, input_ = self.world.now(), self._newer(input_)
        instance = Instance(instance_id, name, input_, now, now, self._next_execution())
        instance.runs = 1 if known is None else known.runs + 1
        self.instances[instance_id] = instance
        instance.inbox = [history.Started(name, instance_id, input_, str(instance.execution))]
        instance.parents = [parent] if parent is not None else []
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
        self.on_event(instance_id, name)
        doubled = _PAUSED_TWICE if name == PAUSE_EVENT and self.world.chances.patient else None
        self._send(lambda: self._event(instance_id, name, data), doubled)
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

    def terminate(self, instance_id: str) -> None:
        """End an instance by force, a little later: nothing of it runs any more."""
        instance = self.instances[instance_id]

        def arrived() -> None:
            if instance.is_running:
                self.world.note("terminated", instance_id)
                instance.status, instance.updated_at = OrchestrationStatus.TERMINATED, self.world.now()
                instance.output = json.dumps("by hand")

        self._deliver(self.world.delay_seconds(), arrived)

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

    # Turns.

    def _turn_soon(self, instance: Instance) -> None:
        if instance.turn_due:
            return
        instance.turn_due = True
        seconds = self.world.rng.uniform(0.001, 0.05)
        self._deliver(seconds, lambda: self._turn(instance))

    def _turn(self, instance: Instance) -> None:
        instance.turn_due = False
        if not instance.is_running:
            return  # It was terminated.
        self._turn_at = self.world.now() + self._skew()
        new = [history.TurnBegan(self._turn_at), *instance.inbox]
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

    def _send_uncommitted(self, instance: Instance, turn: history.Turn) -> None:
        """Do what a turn asks for without a word of it in its instance's history."""
        self.world.note("uncommitted", instance.instance_id)
        instance.session = None
        instance.is_uncommitted = instance.is_repeated = True
        forgotten = replace(instance, past=[], inbox=[], awaits=set())
        for action in turn.actions:
            if not isinstance(action, history.End):
                self._act(forgotten, action)
            elif OrchestrationStatus(action.status) is OrchestrationStatus.COMPLETED:
                instance.said_to_end_at = instance.said_to_end_at or self.world.now()

    def _skew(self) -> timedelta:
        """Return that of the worker which runs a turn."""
        workers = self.world.workers
        return self.world.rng.choice(workers).skew if workers else timedelta(0)

    def _executed(self, instance: Instance, new: list[history.Event]) -> history.Turn:
        if not self.world.scale.is_small or instance.is_crossed:
            return self._replayed(instance, new)
        session = instance.session
        if session is None:
            session = instance.session = self.turns.begun(instance.name, instance.instance_id)
        turn = session.continued(instance.past, new)
        if self.world.happens(_REPLAYED):
            self._compare(instance, turn, self._replayed(instance, new))
        return turn

    def _replayed(self, instance: Instance, new: list[history.Event]) -> history.Turn:
        return self.turns.replayed(instance.name, instance.instance_id, instance.past, new)

    def _compare(self, instance: Instance, one: history.Turn, other: history.Turn) -> None:
        self.compared += 1
        if one != other:
            self.world.mistake("a repeated turn differs", instance.instance_id, one, other)

    def _act(self, instance: Instance, action: history.Action) -> None:
        match action:
            case history.CallActivity():
                self._schedule(instance, action)
            case history.SetTimer():
                self._set_timer(instance, action)
            case history.CallEntity():
                self._ask_entity(instance, action)
            case history.SignalEntity():
                instance.past.append(action)
                self.signal(action.entity, action.operation, json.loads(action.input))
            case history.StartChild():
                self._start_child(instance, action)
            case history.SendEvent():
                instance.past.append(action)
                self.raise_event(action.instance_id, action.name, action.data)
            case history.End():
                self._complete(instance, action)

    def _set_timer(self, instance: Instance, timer: history.SetTimer) -> None:
        instance.past.append(timer)
        # The message is hidden for so long by the clock of who sends it.
        seconds = (timer.fire_at.replace(tzinfo=UTC) - self._turn_at).total_seconds()
        seconds += self.world.timer_seconds()
        # One of a lost turn fires for another instant than that of the turn which runs again.
        asked = (f"{_TIMER} {timer.fire_at}", timer.number)
        instance.awaits.add(asked)
        if self._loses(instance, _TIMER):
            return
        fired = history.Fired(timer.number, timer.fire_at)
        self.world.later(max(0.0, seconds), self._answer, instance.asker, asked, fired)

    def _start_child(self, instance: Instance, child: history.StartChild) -> None:
        instance.past.append(child)
        instance.awaits.add((_CHILD, child.number))
        parent = (instance.asker, child.number)

        def arrived() -> None:
            # One of that name that runs already does the same work.
            if not self.start(child.name, child.instance_id, child.input, replaces_ended=True, parent=parent):
                self.instances[child.instance_id].parents.append(parent)

        self._deliver(self.world.rng.uniform(0.01, 0.5), arrived)

    def _complete(self, instance: Instance, end: history.End) -> None:
        status = OrchestrationStatus(end.status)
        if status is OrchestrationStatus.CONTINUED_AS_NEW:
            instance.past, instance.input, instance.session = [], self._newer(end.result or ""), None
            instance.is_crossed = False
            instance.awaits.clear()
            instance.given_up.clear()
            instance.execution = self._next_execution()
            started = history.Started(
                instance.name, instance.instance_id, instance.input, str(instance.execution)
            )
            instance.inbox = [started, *end.carried]
            self._turn_soon(instance)
            return
        instance.status = status
        instance.output = end.result
        self.world.note("ends", instance.instance_id, instance.status.name)
        if instance.status is not OrchestrationStatus.COMPLETED:
            self.world.mistake("an orchestration failed", instance.instance_id, end.failure)
        for asker, number in instance.parents:
            known = self.instances.get(asker[0])
            if known is not None and known.is_running and known.asker == asker:
                self._answer_parent(asker, number, instance)
        self.on_end(instance)

    def _answer_parent(self, asker: Asker, number: int, child: Instance) -> None:
        ended = history.ChildEnded(number, child.output)
        self._deliver(self.world.delay_seconds(), lambda: self._answer(asker, (_CHILD, number), ended))

    # Entities.

    def _ask_entity(self, instance: Instance, call: history.CallEntity) -> None:
        instance.past.append(call)
        instance.awaits.add((_ENTITY, call.request_id))
        if self._loses(instance, call.entity):
            return
        asker = instance.asker
        self._send(lambda: self._call_entity(asker, call), self.world.chances.called_twice)

    def _call_entity(self, asker: Asker, call: history.CallEntity) -> None:
        before = self.states.get(call.entity)
        answer: history.Event
        if self.world.happens(self.world.chances.dead_batch):
            answer = history.Refused(
                call.request_id, helpers.new_failure_details(RuntimeError("the worker died"))
            )
            self._deliver(0.1, lambda: self._answer(asker, (_ENTITY, call.request_id), answer))
            return
        try:
            result = self._operate(call.entity, call.operation, json.loads(call.input))
        except ValueError as error:
            answer = history.Refused(call.request_id, helpers.new_failure_details(error))
        else:
            answer = history.Replied(call.request_id, json.dumps(result))
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
        for name, instance_id, given in done.starts:
            self._deliver(
                self.world.delay_seconds(), partial(self._start_for_entity, name, instance_id, given)
            )
        return done.result

    def _start_for_entity(self, name: str, instance_id: str, given: Any) -> None:
        self.start(name, instance_id, json.dumps(given), replaces_ended=True)

    def _signaled(self, signal: Signal) -> None:
        """Run the operation that a signal asks for, unless the worker of its batch dies: then it is lost."""
        if self.world.happens(self.world.chances.dead_batch):
            self.world.note("lost", signal.entity, signal.operation)
            self.lost.append((signal.entity, signal.operation))
            return
        self._operate(signal.entity, signal.operation, signal.input)

    def _next_execution(self) -> int:
        self._executions += 1
        return self._executions
