"""Crowds at one limiter, on a clock of their own: workers, their shares, late timers, slow messages.

An attempt goes as the engine lets it go: within its worker's share, or by the limiter's answer; it waits when
told to, starts in its turn, gives its slot back, and may be cancelled, or vanish without a message.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random

from durable_retry.base.names import Priority
from durable_retry.features.limits.rules.calls import look, next_look, successors
from durable_retry.features.limits.rules.limiter import acquire, change, give_back, leave
from durable_retry.features.limits.rules.settings import LimitSettings, ReadLimits
from durable_retry.features.limits.rules.share import Part, WorkerShare
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.rules.retry.slots import (
    Leaving,
    Slot,
    SlotPostponed,
    SlotRequest,
    is_valid,
    within_deadline,
)
from tests.support.builders import NOON


@dataclass
class Backend:
    """How late things are; onebox by default."""

    hop: tuple[float, float] = (0.002, 0.01)  # a message, or a turn, or an activity that begins
    timer: tuple[float, float] = (0.0, 0.01)
    each: float = 0.0  # for which a message keeps those behind it waiting
    lost: float = 0.0  # part of the signals that are lost, with workers that die in the entity


AZURE = Backend(hop=(0.03, 0.2), timer=(0.9, 1.7))


@dataclass(eq=False)
class Attempt:
    """One attempt of the crowd."""

    name: str
    due: float
    holds: float
    limit_key: str | None = None
    priority: Priority | None = None
    started: float | None = None
    ended: float | None = None
    asks: int = 0
    turn_at: datetime | None = None
    ahead: int | None = None
    has_waited: bool = False
    is_gone: bool = False
    slot: Slot | None = None
    is_waiting: bool = False
    is_called: bool = False  # while it waited for an answer
    freed: Slot | None = None  # of which it was told then


@dataclass
class Crowd:
    """Attempts at one limiter, and what was seen of them."""

    limits: LimitSettings
    seed: int = 1
    backend: Backend = field(default_factory=Backend)
    workers: int = 1
    deadline_seconds: float | None = None  # for which an attempt waits; None is for ever
    lease_seconds: float = 3_600.0
    attempts: list[Attempt] = field(default_factory=list)
    limiter: Limiter = field(default_factory=Limiter)
    now: float = 0.0
    free_at: float = 0.0
    longest_state: int = 0

    def __post_init__(self) -> None:
        self.draw = Random(self.seed)  # noqa: S311 - a simulation
        self.shares = [WorkerShare(self.limits) for _ in range(self.workers)]
        self.steps: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = count()
        self.stopped: tuple[float, float] = (-1.0, -1.0)
        self.by_name: dict[str, Attempt] = {}

    @property
    def at(self) -> datetime:
        return NOON + timedelta(seconds=self.now)

    def plan(self, at: float, step: Callable[[], None]) -> None:
        # The app does nothing while it is stopped.
        begin, end = self.stopped
        heappush(self.steps, (end if begin <= at < end else at, next(self.numbers), step))

    def hop(self) -> float:
        self.free_at = max(self.free_at, self.now) + self.backend.each
        queued = self.free_at - self.now if self.backend.each else 0.0
        return queued + self.draw.uniform(*self.backend.hop)

    def arrive(
        self,
        number: int,
        at: float = 0.0,
        holds: float = 0.1,
        key: str | None = None,
        priority: Priority | None = None,
    ) -> list[Attempt]:
        """Let so many attempts arrive at one instant."""
        first = len(self.attempts)
        new = [Attempt(f"op-{first + n}:1", at, holds, key, priority) for n in range(number)]
        for attempt in new:
            self.attempts.append(attempt)
            self.by_name[attempt.name] = attempt
            self.plan(at + self.hop(), partial(self.come, attempt))
        return new

    def cancel(self, attempts: list[Attempt], at: float, *, says_so: bool = True) -> None:
        """Let attempts leave that have not started; one that is terminated does not say so."""

        def go(attempt: Attempt) -> None:
            if attempt.started is None and not attempt.is_gone:
                attempt.is_gone = True
                if says_so:
                    leaving = Leaving(attempt.name, is_gone=True, waiter=attempt.name)
                    self.send(lambda: successors(leave(self.limiter, leaving, self.at)))

        for attempt in attempts:
            self.plan(at, partial(go, attempt))

    def hurry(self, attempts: list[Attempt], at: float) -> None:
        """Let attempts come at once, as `retry-now` does."""
        for attempt in attempts:
            self.plan(at, partial(self.come, attempt))

    def change(self, limits: ReadLimits) -> None:
        """Let the workers read other limits, and tell the limiter of them."""
        self.limits = limits
        for share in self.shares:
            share.settings = limits
        self.send(lambda: successors(change(self.limiter, limits, self.at)))

    def run(self, until: float = 100_000.0) -> "Crowd":
        while self.steps and self.steps[0][0] <= until:
            self.now, _, step = heappop(self.steps)
            step()
        return self

    def send(self, change: Callable[[], tuple[Limiter, tuple[str, ...]]]) -> None:
        """Send the limiter a signal, unless it is lost; the limiter has those told that it calls."""
        if not self.backend.lost or self.draw.random() >= self.backend.lost:
            self.plan(self.now + self.hop(), lambda: self.keep(*change()))

    def keep(self, limiter: Limiter, called: tuple[str, ...]) -> None:
        """Store the limiter's state, have those told that it calls, and let it look when that is due."""
        self.limiter, look_at = next_look(limiter)
        for name in called:
            # An orchestration that starts tells them.
            self.plan(self.now + self.hop() + self.hop(), partial(self.called, self.by_name[name]))
        if look_at is not None:
            after_seconds = max((look_at - self.at).total_seconds(), 0.0)
            late = self.draw.uniform(*self.backend.timer)
            self.plan(self.now + after_seconds + late, lambda: self.send(lambda: look(self.limiter, self.at)))

    def come(self, attempt: Attempt, share: WorkerShare | None = None) -> None:
        """Let an attempt come to a worker."""
        if attempt.is_gone and attempt.slot is not None:
            slot, attempt.slot = attempt.slot, None
            self.give_back(slot)  # One that is terminated keeps it until its lease ends.
        if attempt.is_gone or attempt.started is not None:
            return
        share = share or self.draw.choice(self.shares)
        part = Part(self.workers, next(rank for rank, one in enumerate(self.shares) if one is share))
        turn_at = attempt.turn_at if is_valid(attempt.turn_at, self.at) else None
        given, has_waited = attempt.slot, attempt.slot is None or attempt.has_waited
        is_crowded = has_waited or (given is not None and given.is_crowded is True)
        seconds = share.seconds_until(turn_at, self.at, is_crowded=is_crowded)
        if seconds > 0:
            self.plan(self.now + seconds, lambda: self.come(attempt, share))
            return
        has_slot = attempt.slot is not None
        if (
            (has_slot or not self.limits.lends_slots)
            if turn_at or (attempt.turn_at and share.may_start_late(self.at, part, attempt.limit_key))
            else has_slot and not self.limits.rate_per_second
        ):
            share.note_start(self.at, attempt.limit_key)
            held = attempt.slot
            if held is not None and held.calls and share.take(self.at, part, ahead=0):
                attempt.slot = None
                self.give_back(held)
                self.start(attempt, share)
            else:
                self.start(attempt, None)
        elif attempt.slot is not None:
            slot, attempt.slot = attempt.slot, None
            self.give_back(slot)
            self.ask(attempt)
        elif share.take(
            self.at,
            part,
            ahead=attempt.ahead if attempt.has_waited else None,
        ):
            if attempt.has_waited:
                self.send(lambda: successors(leave(self.limiter, Leaving(attempt.name), self.at)))
            self.start(attempt, share)
        else:
            self.ask(attempt)

    def ask(self, attempt: Attempt, freed: Slot | None = None) -> None:
        asked_at = self.at
        latest = self.seconds_left(attempt)

        def arrive() -> None:
            request = SlotRequest(
                attempt.name,
                self.lease_seconds,
                self.limits.of_key(attempt.limit_key).to_json(),
                asked_at,
                NOON + timedelta(seconds=attempt.due),
                is_valid(attempt.turn_at, asked_at),
                attempt.has_waited,
                latest,
                priority=attempt.priority,
                limit_key=attempt.limit_key,
                waiter=attempt.name,
                freed=None if freed is None else freed.to_json(),
            )
            limiter, answer = acquire(self.limiter, request, self.at)
            self.keep(*successors(limiter))
            attempt.asks += 1
            self.plan(
                self.now + self.hop(),
                lambda: self.hear(attempt, within_deadline(answer, request, self.at)),
            )

        self.plan(self.now + self.hop(), arrive)

    def seconds_left(self, attempt: Attempt) -> float | None:
        return None if self.deadline_seconds is None else attempt.due + self.deadline_seconds - self.now

    def hear(self, attempt: Attempt, answer: Slot | SlotPostponed) -> None:
        wait_seconds = (isinstance(answer, SlotPostponed) and answer.seconds) or 0.0
        left = self.seconds_left(attempt)
        if left is not None and left < wait_seconds:
            self.cancel([attempt], self.now)
        if answer.turn_seconds is not None:
            attempt.turn_at = self.at + timedelta(seconds=answer.turn_seconds)
        elif not is_valid(attempt.turn_at, self.at):
            attempt.turn_at = None
        if isinstance(answer, Slot):
            attempt.slot = answer
            if attempt.is_gone:
                self.give_back(answer)
            self.plan(self.now + self.hop(), lambda: self.come(attempt))
            return
        attempt.has_waited, attempt.ahead, attempt.is_waiting = True, answer.ahead, True
        at, asks = self.now + answer.seconds, attempt.asks

        def fire() -> None:
            if attempt.is_waiting and attempt.asks == asks:
                attempt.is_waiting = False
                self.come(attempt)

        self.plan(at + self.draw.uniform(*self.backend.timer), fire)
        if attempt.is_called:
            attempt.is_called = False
            self.called(attempt, attempt.freed)

    def start(self, attempt: Attempt, share: WorkerShare | None) -> None:
        attempt.started = self.now

        def end() -> None:
            attempt.ended = self.now
            if share is not None:
                share.ended()
            slot = attempt.slot
            if slot is not None and slot.lease_id is not None:
                lasted = replace(slot, lasted_seconds=attempt.holds)
                self.plan(self.now + self.hop(), lambda: self.give_back(lasted))

        self.plan(self.now + attempt.holds, end)

    def give_back(self, slot: Slot) -> None:
        """Give a slot back, and tell those that it calls, as `give_slot_back` does."""
        self.send(lambda: successors(give_back(self.limiter, slot, self.at)))
        for name in slot.calls or ():
            self.plan(self.now + self.hop(), partial(self.called, self.by_name[name], slot))

    def called(self, attempt: Attempt, freed: Slot | None = None) -> None:
        """Let an attempt that waits ask, since a slot is free: that which was given back, if it is known."""
        if not attempt.is_waiting:
            attempt.is_called, attempt.freed = True, freed
        elif not attempt.is_gone:
            attempt.is_waiting = False
            self.plan(self.now + self.hop(), lambda: self.ask(attempt, freed))

    @property
    def starts(self) -> list[float]:
        return sorted(attempt.started for attempt in self.attempts if attempt.started is not None)

    @property
    def fullest(self) -> int:
        starts, first, most = self.starts, 0, 0
        for index, start in enumerate(starts):
            while starts[first] <= start - 1.0:
                first += 1
            most = max(most, index - first + 1)
        return most

    @property
    def most_at_once(self) -> int:
        changes = [
            step
            for attempt in self.attempts
            if attempt.started is not None
            for step in ((attempt.started, 1), (attempt.started + attempt.holds, -1))
        ]
        running = most = 0
        for _, step in sorted(changes):
            running += step
            most = max(most, running)
        return most
