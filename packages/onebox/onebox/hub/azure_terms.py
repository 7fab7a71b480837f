"""The terms of Azure Storage, weaker than this hub's own: what stands them here stands them there.

Read in DurableTask.AzureStorage and the Durable extension:

- A start looks first and writes later, and ignores that another start was first: its input is dropped.
- A turn's messages, and an entity's, go out before its state is stored. When that fails, the turn runs again:
  at another time, on another machine, with what has come meanwhile, and its messages go out again. Answers to
  what only the lost turn has asked for wait until the turn is stored.
- An instance's partition is on one machine until its lease moves, which is when turns are lost. Each machine
  has its own clock, and an orchestrator's time is that of the machine which runs the turn: it may go back
  within one history.
- A timer, a start or a signal for later is a message that is hidden for whole seconds, counted by the clock
  of its sender, until a poll finds it. On a real host timers fired 0.9 to 1.7 s late (extension 3.14.1).
- Messages come twice and overtake each other, and an activity may run on two machines at once.
- A fetch whose answer is lost hides its messages for the visibility timeout; so does a host that dies
  (`dead_host`).
- Whoever waits for an end asks every two seconds.

`HubClasses` are those that a hub is made of: with its own terms its own classes, and nothing here runs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final, NoReturn, override
from zlib import crc32

import durabletask.internal.orchestrator_service_pb2 as pb

from onebox.clock import Clock
from onebox.hub.database import Transaction
from onebox.hub.dead_host import AzureEngine
from onebox.hub.engine import Engine
from onebox.hub.entities import BatchChanges, send_from_batch
from onebox.hub.events import events_in
from onebox.hub.group import Basis
from onebox.hub.instances import send_messages
from onebox.hub.invoker import InvocationLostError, Invoker
from onebox.hub.listing import InstanceState
from onebox.hub.model import FencedError, InstanceExistsError, Kind, Lane, Message, Start, Status, now_us
from onebox.hub.reading import Live, Reader
from onebox.hub.settings import AzureTerms
from onebox.hub.taskhub import TaskHub
from onebox.hub.turn import Rewound, Turn
from onebox.hub.workers import NotImmediateError, Step, Workers

_SECOND_US: Final = 1_000_000
_PARTITIONS: Final = 4  # as Azure Storage has, unless host.json says otherwise
_POLL: Final = timedelta(seconds=2)
_LATE_SECONDS: Final = (0.9, 1.7)

_REPEATABLE: Final = frozenset({Kind.EVENT, Kind.OPERATION, Kind.RESULT})
"""What may come twice or late."""

_LOCKS: Final = frozenset({Kind.LOCK, Kind.UNLOCK})
"""Come once and in order, and so do the turns and batches that deal with them."""


class Chances:
    """Draws what happens in one hub."""

    def __init__(self, terms: AzureTerms) -> None:
        self.terms = terms
        self._random = Random(terms.seed)  # noqa: S311 - chance, not secrets
        skew = terms.skew_seconds
        self._skews_us = [self.draw_us(-skew, skew) for _ in range(_PARTITIONS)]

    def happens(self, share: float) -> bool:
        """Draw whether something happens."""
        return self._random.random() < share

    def draw_us(self, low_seconds: float, high_seconds: float) -> int:
        """Draw a duration."""
        return int(self._random.uniform(low_seconds, high_seconds) * _SECOND_US)

    def skew_us(self, instance_id: str) -> int:
        """Return how far the clock of the machine is ahead that has an instance's partition."""
        return self._skews_us[self._partition_of(instance_id)]

    def move(self, instance_id: str) -> None:
        """Let another machine have an instance's partition."""
        skew = self.terms.skew_seconds
        self._skews_us[self._partition_of(instance_id)] = self.draw_us(-skew, skew)

    def _partition_of(self, instance_id: str) -> int:
        return crc32(instance_id.encode()) % _PARTITIONS

    async def pause(self, clock: Clock, low_seconds: float, high_seconds: float) -> None:
        """Wait for a drawn time."""
        until = clock.now() + timedelta(microseconds=self.draw_us(low_seconds, high_seconds))
        while clock.now() < until:
            await clock.wait(until, asyncio.Event())


@dataclass(slots=True)
class AzureTransaction(Transaction):
    """Delivers messages twice and late."""

    chances: Chances = field(kw_only=True)

    @override
    def post(
        self,
        target: str,
        kind: Kind,
        events: bytes,
        *,
        execution_id: str | None = None,
        due_us: int | None = None,
    ) -> bool:
        chances, terms = self.chances, self.chances.terms
        arrival_us = due_us
        if due_us is not None and due_us > self.now_us:
            arrival_us = due_us + chances.draw_us(*_LATE_SECONDS)
        elif due_us is None and kind in _REPEATABLE and chances.happens(terms.overtaken):
            arrival_us = self.now_us + chances.draw_us(0, 1)
        if chances.happens(terms.unanswered):
            arrival_us = (arrival_us or self.now_us) + int(terms.control_hidden_seconds * _SECOND_US)
        taken = Transaction.post(self, target, kind, events, execution_id=execution_id, due_us=arrival_us)
        if taken and kind in _REPEATABLE and chances.happens(terms.repeated):
            again_us = (arrival_us or self.now_us) + chances.draw_us(0, 5)
            Transaction.post(self, target, kind, events, execution_id=execution_id, due_us=again_us)
        return taken


@dataclass(slots=True)
class _Lease:
    """An instance's turn on one machine.

    Attributes:
        skew_us: How far the machine's clock is ahead.
        lost_us: When a turn of it was lost last; None unless the next one repeats it.
    """

    skew_us: int = 0
    lost_us: int | None = None


class AzureWorkers(Workers):
    """Loses turns and batches after their messages have gone out, and runs turns by clocks that differ."""

    def __init__(self, chances: Chances, **parts: Any) -> None:
        if chances.terms.died:
            parts["invoker"] = _DyingInvoker(parts["invoker"], chances)
        super().__init__(**parts)
        self._chances = chances
        self._leases: dict[str, _Lease] = {}

    @override
    def follow_turn(self, tx: Transaction, instance_id: str, lane: Lane, basis: Basis) -> NoReturn:
        raise NotImmediateError  # nothing is stored together with what woke it

    @override
    def follow_batch(self, tx: Transaction, entity_id: str, _: Lane, basis: Basis) -> NoReturn:
        raise NotImmediateError  # as above

    @override
    def _load_turn(self, reader: Reader, instance_id: str, at_us: int) -> Step | None:
        step = super()._load_turn(reader, instance_id, at_us)
        if step is None:
            return None
        lease = self._leases.setdefault(instance_id, _Lease())
        lease.skew_us = self._chances.skew_us(instance_id)
        taken = [message for message in step.taken if not self._is_early(lease, message)]
        if not taken:
            return None
        held = len(taken) < len(step.taken)
        taken = _without_unasked(step.live, taken)
        return replace(step, at_us=at_us + lease.skew_us, taken=taken, has_more=step.has_more or held)

    def _is_early(self, lease: _Lease, message: Message) -> bool:
        """Whether a message may answer what only a lost turn has asked for."""
        return lease.lost_us is not None and message.kind is Kind.RESULT and message.due_us >= lease.lost_us

    @override
    async def _store_turn(self, step: Step, turn: Turn, lane: Lane, basis: Basis | None = None) -> None:
        head = step.live.head
        lease = self._leases[head.id]
        turn.posts = [
            replace(post, due_us=post.due_us - lease.skew_us)
            if post.kind is Kind.RESULT and post.due_us is not None
            else post
            for post in turn.posts
        ]
        may_be_lost = not isinstance(turn.outcome, Rewound) and not any(
            post.kind in _LOCKS for post in turn.posts
        )
        if may_be_lost and self._chances.happens(self._chances.terms.lost):
            lease.lost_us = lease.lost_us or now_us(self._clock)
            await self._writer.commit_surely(lambda tx: send_messages(tx, head, turn, lane))
            self._chances.move(head.id)
            await self._chances.pause(self._clock, 0.02, 1)
            raise FencedError(f"turn {head.turn} of '{head.id}' was not stored, its messages have gone out")
        await super()._store_turn(step, turn, lane, basis)
        del self._leases[head.id]

    @override
    async def _store_batch(self, changes: BatchChanges, basis: Basis | None = None) -> None:
        locks = any(message.kind in _LOCKS for message in changes.done)
        if not locks and self._chances.happens(self._chances.terms.lost):

            def send(tx: Transaction) -> None:
                send_from_batch(tx, changes)
                # What a machine gives back comes after what others have received meanwhile.
                again = [(tx.now_us + _SECOND_US, message.seq) for message in changes.done]
                tx.run_many("message.move", again)

            await self._writer.commit_surely(send)
            await self._chances.pause(self._clock, 0.02, 1)
            raise FencedError(f"a batch of '{changes.entity.id}' was not stored, its messages have gone out")
        await super()._store_batch(changes, basis)

    @override
    async def activity(self, seq: int, lane: Lane) -> None:
        terms = self._chances.terms
        if self._chances.happens(terms.unanswered):
            await self._chances.pause(self._clock, terms.work_hidden_seconds, terms.work_hidden_seconds)
        if not self._chances.happens(self._chances.terms.doubled):
            await super().activity(seq, lane)
            return
        async with asyncio.TaskGroup() as machines:
            machines.create_task(super().activity(seq, lane))
            await self._chances.pause(self._clock, 0, 0.5)
            machines.create_task(super().activity(seq, lane))


def _without_unasked(live: Live, taken: list[Message]) -> list[Message]:
    """Empty the answers of entities to calls that the history does not hold, or that are answered.

    On Azure Storage they come as external events that nobody waits for; in the hub's form they would fail the
    orchestration. A lost turn's calls have ids of their own.
    """
    answered = [_answered_call(message) for message in taken]
    if not any(answered):
        return taken
    history = events_in(b"".join(live.chunks))
    is_open = {each.entityOperationCalled.requestId for each in history} - set(map(_call_of, history))
    left = []
    for message, call in zip(taken, answered, strict=True):
        left.append(message if call is None or call in is_open else replace(message, events=b""))
        is_open.discard(call or "")
    return left


def _answered_call(message: Message) -> str | None:
    """Return the id of the call of an entity that a message answers; None when it does not."""
    found = map(_call_of, events_in(message.events)) if message.kind is Kind.RESULT else iter(())
    return next(filter(None, found), None)


def _call_of(event: pb.HistoryEvent) -> str:
    """Return the id of the call that an event answers; "" when it answers none."""
    answer = (
        event.entityOperationCompleted
        if event.HasField("entityOperationCompleted")
        else event.entityOperationFailed
    )
    return answer.requestId


class _DyingInvoker:
    """Loses activities and batches to workers that die, half of them after the function has run."""

    def __init__(self, invoker: Invoker, chances: Chances) -> None:
        self._invoker = invoker
        self._chances = chances

    def __getattr__(self, name: str) -> Any:
        return getattr(self._invoker, name)

    async def entity(self, name: str, request: pb.EntityBatchRequest) -> pb.EntityBatchResult:
        return await self._run(lambda: self._invoker.entity(name, request))

    async def activity(self, *asked: Any) -> str | None:
        return await self._run(lambda: self._invoker.activity(*asked))

    async def _run[T](self, invoke: Callable[[], Awaitable[T]]) -> T:
        if not self._chances.happens(self._chances.terms.died):
            return await invoke()
        if self._chances.happens(0.5):
            await invoke()
        raise InvocationLostError("its worker died, by chance")


class AzureTaskHub(TaskHub):
    """Starts without an atomic look, and polls."""

    def __init__(self, chances: Chances, *parts: Any) -> None:
        super().__init__(*parts)
        self._chances = chances

    @override
    async def _create(self, wanted: Start) -> None:
        found = self.get(wanted.instance_id)
        if not self._chances.happens(self._chances.terms.raced):
            await super()._create(wanted)
            return
        if found is not None and found.status not in (wanted.replaceable or ()):
            raise InstanceExistsError(wanted.instance_id, found.status)
        await self._chances.pause(self._clock, 0, 0.3)
        if _execution(self.get(wanted.instance_id)) == _execution(found):
            try:
                await super()._create(wanted)
            except InstanceExistsError:
                return  # another start was first: this one is dropped in silence

    @override
    async def _until_it_may_have_changed(self, _: asyncio.Event) -> None:
        await self._clock.wait(self._clock.now() + _POLL, asyncio.Event())


def _execution(instance: InstanceState | None) -> tuple[str, Status] | None:
    return None if instance is None else (instance.execution_id, instance.status)


@dataclass(frozen=True)
class HubClasses:
    """The classes that a hub is made of; the defaults are those of the hub's own terms."""

    engine: Callable[..., Engine] = Engine
    workers: Callable[..., Workers] = Workers
    transaction: Callable[..., Transaction] = Transaction
    task_hub: Callable[..., TaskHub] = TaskHub


def classes_for(terms: AzureTerms | None) -> HubClasses:
    """Return the classes of a hub with these terms; None means its own."""
    if terms is None:
        return HubClasses()
    chances = Chances(terms)
    return HubClasses(
        engine=partial(AzureEngine, terms),
        workers=partial(AzureWorkers, chances),
        transaction=partial(AzureTransaction, chances=chances),
        task_hub=partial(AzureTaskHub, chances),
    )
