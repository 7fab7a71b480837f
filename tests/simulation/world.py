"""The simulated world: time, chance, and workers that die between any two effects.

Everything random is drawn from one generator, so a seed is a world. An effect (a row, a message, a call) is
made right after `World.point`: there the worker that makes it may die, and what runs on a dead worker never
goes on.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from random import Random
from typing import Any, Final, Never

from tests.simulation.chances import Chances, Scale
from tests.simulation.virtual_loop import tasks_left

START: Final = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)

_SKEW_SECONDS: Final = 1.0
_PAUSES: Final = 0.5
_SHORT_SECONDS: Final = (0.001, 0.02)
_DEAD_SECONDS: Final = (1.0, 20.0)


class GoneError(Exception):
    """The world is over; whatever still runs ends here."""


@dataclass
class Worker:
    """One process that runs functions, for one life.

    Attributes:
        name: Of the life: also what its functions are given as the durable client's binding.
        alive: False for ever once it has died.
        lock: Stands for what is shared in one process and by nobody else.
        skew: How far its clock is ahead.
        waiting: Futures of those who wait for what it does; done when it dies.
    """

    name: str
    skew: timedelta = timedelta(0)
    alive: bool = True
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    async def outlives(self, task: asyncio.Task[Any]) -> None:
        """Wait until one of its tasks has ended, or it has died."""
        over = asyncio.get_running_loop().create_future()
        self.waiting.append(over)

        def ended(_task: object) -> None:
            if not over.done():
                self.waiting.remove(over)
                over.set_result(None)

        task.add_done_callback(ended)
        await over


@dataclass
class Execution:
    """One execution of an activity.

    Attributes:
        given: The activity's input.
        began_at: When it began.
        counts: Whether its answer is the one that the orchestration took: not one that it had given up.
        ended_at: When it returned or raised; None when its worker died before.
        raised: What it raised; None when it returned, or its worker died before.
    """

    given: dict[str, Any]
    began_at: datetime
    counts: bool = False
    ended_at: datetime | None = None
    raised: BaseException | None = None


acting: ContextVar[Worker | None] = ContextVar("acting", default=None)
"""The worker on which the present task runs; None for the outside."""

executing: ContextVar[Execution | None] = ContextVar("executing", default=None)
"""What the present task is part of; None outside of activities."""


@dataclass
class World:
    """One simulated world.

    Attributes:
        seed: Everything follows from it.
        chances: Of trouble; `CALM` when the storm is over.
        scale: How large it is.
        rng: The only source of chance.
        workers: Those that are alive.
        on_birth: Called for each worker as it comes up.
        on_death: Called for each that dies.
        deaths: When one died, in seconds.
        lives: When each storm began. There are two where keys are used again after their records' expiry.
        storm_ends: Of the present life, in seconds since the beginning.
        has_skew: Whether clocks differ in it.
        is_crowded: Whether all callers come at once and want the same.
        is_punctual: Whether no message is late in it.
        is_losing: Whether messages are lost in it.
        mistakes: What must never be seen, as it was seen.
        read: Operations that attempts read from the hub, by the id of the input.
        log: What happened, in order.
        is_stopped: Whether the app is stopped: no turn of an orchestration or an entity is made meanwhile.
    """

    seed: int
    chances: Chances
    scale: Scale
    rng: Random = field(init=False)
    workers: list[Worker] = field(default_factory=list)
    on_birth: list[Callable[[Worker], None]] = field(default_factory=list)
    on_death: list[Callable[[Worker], None]] = field(default_factory=list)
    deaths: list[float] = field(default_factory=list)
    lives: list[datetime] = field(default_factory=list)
    storm_ends: float = 0.0
    has_skew: bool = False
    is_crowded: bool = False
    is_punctual: bool = False
    is_losing: bool = False
    mistakes: list[str] = field(default_factory=list)
    read: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    over: bool = False
    is_stopped: bool = False
    _born: int = 0

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)  # noqa: S311 - chance, not secrets
        self.has_skew = self.chances.skewed > 0
        self.is_crowded = self.chances.crowded > 0
        self.is_punctual = self.chances.late == 0
        self.is_losing = self.chances.lost > 0

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def local_now(self) -> datetime:
        """Return the time by the clock of the acting worker."""
        return self.now() + self.skew

    @property
    def skew(self) -> timedelta:
        """How far the clock of the acting worker is ahead."""
        worker = acting.get()
        return timedelta(0) if worker is None else worker.skew

    def _skew(self) -> timedelta:
        skewed = self.happens(self.chances.skewed)
        return timedelta(seconds=self.rng.uniform(-_SKEW_SECONDS, _SKEW_SECONDS) if skewed else 0.0)

    def begin_life(self) -> None:
        """Begin another storm; the first has begun with the world."""
        self.lives.append(self.now())
        self.storm_ends = self.seconds + self.scale.storm_seconds

    def life_at(self, instant: datetime) -> int:
        """Return how many lives had begun; clocks differ by much less than lives lie apart."""
        return sum(began <= instant + timedelta(hours=1) for began in self.lives)

    @property
    def clock_difference(self) -> timedelta:
        """The most by which two clocks of this world differ."""
        return timedelta(seconds=2 * _SKEW_SECONDS if self.has_skew else 0)

    def note(self, *what: object) -> None:
        self.log.append(f"{self.seconds:.3f} " + " ".join(map(str, what)))

    def mistake(self, *what: object) -> None:
        self.note("MISTAKE", *what)
        self.mistakes.append(" ".join(map(str, what)))

    def digest(self) -> str:
        """Return what two runs of one seed have in common."""
        return sha256(json.dumps(self.log).encode()).hexdigest()

    def happens(self, chance: float) -> bool:
        return self.rng.random() < chance

    def delay_seconds(self) -> float:
        """Draw how long a message is under way: most are quick, some overtake others, some are very late."""
        if self.scale.is_quick:
            return self.rng.uniform(*_SHORT_SECONDS)
        if self.happens(self.chances.late):
            return self.rng.uniform(10, self.scale.latest_seconds)
        return self.rng.uniform(0.005, 0.3) if self.happens(0.9) else self.rng.uniform(0.3, 5)

    def timer_seconds(self) -> float:
        """Draw how late a timer fires."""
        if self.scale.is_quick:
            return self.rng.uniform(*_SHORT_SECONDS)
        late = self.rng.choice((0.001, 0.05, 0.5, 3.0))
        return late - self.rng.uniform(0, 1) if self.happens(self.chances.early) else late

    def later(self, seconds: float, act: Callable[..., object], *given: Any) -> None:
        """Do something later, whatever becomes of the workers."""
        asyncio.get_running_loop().call_later(seconds, act, *given)

    def give_birth(self) -> None:
        """Let a worker come up."""
        self._born += 1
        worker = Worker(f"worker-{self._born}", self._skew())
        self.workers.append(worker)
        for introduce in self.on_birth:
            introduce(worker)

    def kill(self, worker: Worker) -> None:
        """Let a worker die, and another come up in its place a little later."""
        self._end_life(worker)
        self.later(self.rng.uniform(*_DEAD_SECONDS), self.give_birth)
        for remove in self.on_death:
            remove(worker)

    async def restart(self, seconds: float) -> None:
        """Stop the app in the middle of everything, and start it again after a while."""
        stopped, self.is_stopped = tuple(self.workers), True
        for worker in stopped:
            self._end_life(worker)
        for worker in stopped:
            for remove in self.on_death:
                remove(worker)
        await asyncio.sleep(seconds)
        self.is_stopped = False
        for _ in stopped:
            self.give_birth()

    def replace(self, worker: Worker) -> None:
        """Let another worker come up in place of one that ends what it has, and takes nothing new."""
        self.note("leaves", worker.name)
        self.workers.remove(worker)
        self.give_birth()

    def _end_life(self, worker: Worker) -> None:
        self.note("dies", worker.name)
        worker.alive = False
        for future in worker.waiting:
            if not future.done():  # Whoever waited may have given up in this very moment.
                future.set_result(None)
        worker.waiting.clear()
        self.deaths.append(self.seconds)
        self.workers.remove(worker)

    def run[T](
        self, worker: Worker, work: Coroutine[Any, Any, T], execution: Execution | None = None
    ) -> asyncio.Task[T]:
        """Run something on a worker; the task never ends when the worker dies before it."""
        before = acting.set(worker), executing.set(execution)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            acting.reset(before[0])
            executing.reset(before[1])

    async def point(self) -> None:
        """A place between two effects."""
        worker = acting.get()
        if self.over:
            raise GoneError
        if worker is None:
            return
        if worker.alive and self.happens(self.chances.crash):
            self.kill(worker)
        if worker.alive and self.happens(_PAUSES):
            await asyncio.sleep(self.rng.uniform(*_SHORT_SECONDS))
        if not worker.alive:
            await self._limbo()

    async def _limbo(self) -> Never:
        """Wait for ever: not even a time limit wakes what is dead."""
        while not self.over:
            with suppress(asyncio.CancelledError):
                await asyncio.get_running_loop().create_future()
        raise GoneError

    async def end(self) -> None:
        """Let go of whatever dead workers left."""
        self.over = True
        while left := tasks_left():
            for task in left:
                task.cancel()
            await asyncio.sleep(0.001)
