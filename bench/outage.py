"""How many calls a ten-minute outage draws, with and without the circuit and the retry budget.

And what happens to ten thousand operations that wait for one circuit.

Simulated: the workers' side is the app's own (`stores.circuit_cache`, `engine.retry.loop`); the task hub is
replaced by a circuit in this process, whose reports arrive a moment after they were sent, and time by a heap
of events.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from pathlib import Path

from bench.numbers import Row, Table
from durable_retry.engine.base.names import FORM, Category
from durable_retry.engine.circuit import (
    Breaker,
    CallHealth,
    CircuitSettings,
    Permitted,
    ReportBuffer,
    ReportMessage,
)
from durable_retry.engine.circuit.retry_budget import RetryBudgetSettings
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.retry.decide import DeadLetter, Done, Wait
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.engine.retry.loop import AttemptNow, RequestProbe, RetryState, StepResult, after
from durable_retry.engine.retry.policy import PRESETS, Timeouts
from durable_retry.stores.circuit import AdmissionSettings
from durable_retry.stores.circuit_cache import CircuitCache

START = datetime(2026, 1, 1, tzinfo=UTC)
CALL_SECONDS = 0.1
SIGNAL_SECONDS = 0.05
WORKERS = 4

type Event = Callable[[], Awaitable[None]]
NO_CIRCUIT = CircuitSettings(enabled=False)
NO_BUDGET = RetryBudgetSettings(ratio=0)
CASES = {
    "neither": (NO_CIRCUIT, NO_BUDGET),
    "budget": (NO_CIRCUIT, RetryBudgetSettings()),
    "circuit": (CircuitSettings(), NO_BUDGET),
    "both": (CircuitSettings(), RetryBudgetSettings()),
    "both, breaks of 60 s at most": (CircuitSettings(max_break_seconds=60), RetryBudgetSettings()),
}

type Show = Callable[[Counts], str]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens.

    Attributes:
        per_second: Operations that arrive each second.
        arrive_seconds: For how long they do.
        dead_from_seconds: When the dependency dies.
        dead_until_seconds: When it is well again.
    """

    per_second: int = 10
    arrive_seconds: int = 720
    dead_from_seconds: float = 60.0
    dead_until_seconds: float = 660.0


@dataclass(slots=True)
class Counts:
    """What came of it.

    Attributes:
        operations: How many there were.
        calls: When each call came, in seconds since the start.
        succeeded: How many succeeded.
        dead: How many became dead letters.
        last_seconds: When the last one ended.
        activities: Runs of the attempt activity.
        events: Reports and requests for probes that the circuit got, and reads of it.
    """

    operations: int = 0
    calls: list[float] = field(default_factory=list)
    succeeded: int = 0
    dead: int = 0
    last_seconds: float = 0.0
    activities: int = 0
    events: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Operation:
    """One operation under way."""

    given: OperationInput
    worker: CircuitCache
    state: RetryState = field(default_factory=RetryState)


class Outage:
    """A fleet through an outage; a `stores.circuit.SharedCircuit` besides."""

    def __init__(self, scenario: Scenario, circuit: CircuitSettings, budget: RetryBudgetSettings) -> None:
        self.scenario = scenario
        self.admission = AdmissionSettings("bench", circuit, budget)
        self.needs_admission = circuit.enabled or budget.ratio > 0
        self.breaker = Breaker()
        self.counts = Counts()
        self.seconds = 0.0
        self._events: list[tuple[float, int, Event]] = []
        self._order = count()
        self._workers = [
            CircuitCache(self.admission, self, ReportBuffer(f"w{number}", circuit), self.now)
            for number in range(WORKERS)
        ]

    def now(self) -> datetime:
        """Returns the present of this world."""
        return START + timedelta(seconds=self.seconds)

    async def read(self) -> Breaker:
        """As a worker reads the entity."""
        self.counts.events["read"] += 1
        return self.breaker

    async def report(self, message: ReportMessage) -> None:
        """As a worker signals the entity: it arrives a moment later."""
        self.counts.events["report"] += 1

        async def arrive() -> None:
            self.breaker = message.apply(self.breaker, self.now())

        self._at(self.seconds + SIGNAL_SECONDS, arrive)

    async def run(self) -> Counts:
        """Plays until every operation has ended."""
        scenario = self.scenario
        for number in range(scenario.per_second * scenario.arrive_seconds):
            self._arrive(number, number / scenario.per_second)
        while self._events:
            self.seconds, _, event = heappop(self._events)
            await event()
        for worker in self._workers:
            worker.reporting.close()
        return self.counts

    def _arrive(self, number: int, at_seconds: float) -> None:
        given = bench_operation(number, START + timedelta(seconds=at_seconds))
        operation = Operation(given, self._workers[number % WORKERS])
        self.counts.operations += 1
        self._at(at_seconds, lambda: self._wake(operation))

    def _at(self, seconds: float, event: Event) -> None:
        heappush(self._events, (max(seconds, self.seconds), next(self._order), event))

    def _when(self, instant: datetime, operation: Operation) -> None:
        self._at((instant - START).total_seconds(), lambda: self._wake(operation))

    async def _wake(self, operation: Operation) -> None:
        self.counts.activities += 1
        if not self.needs_admission:
            self._call(operation, Permitted(0))
            return
        state = operation.state
        attempt = state.history.next_attempt
        answer = await operation.worker.enter(operation.given.operation_id, attempt, state.admission)
        self._ring_for(operation.worker)
        if isinstance(answer, Permitted):
            self._call(operation, answer)
        else:
            self._follow(operation, answer)

    def _call(self, operation: Operation, permitted: Permitted) -> None:
        self.counts.calls.append(self.seconds)
        is_dead = self.scenario.dead_from_seconds <= self.seconds < self.scenario.dead_until_seconds
        self._at(self.seconds + CALL_SECONDS, lambda: self._end(operation, permitted, is_dead=is_dead))

    async def _end(self, operation: Operation, permitted: Permitted, *, is_dead: bool) -> None:
        if self.needs_admission:
            health = CallHealth.FAILURE if is_dead else CallHealth.SUCCESS
            await operation.worker.leave(permitted, health, duration_seconds=CALL_SECONDS)
            self._ring_for(operation.worker)
        self._follow(operation, self._outcome(operation, Category.TRANSIENT if is_dead else None))

    def _follow(self, operation: Operation, result: StepResult) -> None:
        operation.state, action = after(operation.given, operation.state, result, self.now(), FORM)
        match action:
            case Done():
                self.counts.succeeded += 1
                self.counts.last_seconds = self.seconds
            case DeadLetter():
                self.counts.dead += 1
                self.counts.last_seconds = self.seconds
            case Wait():
                self._when(action.until, operation)
            case AttemptNow():
                self._at(self.seconds, lambda: self._wake(operation))
            case RequestProbe():
                self.counts.events["permit"] += 1
                self.breaker, permit = action.message.apply(self.breaker, self.now())
                self._follow(operation, permit)

    def _ring_for(self, worker: CircuitCache) -> None:
        """In the app a timer of the loop does this."""
        due = worker.reporting.next_report_at()
        if due is not None:
            self._at((due - START).total_seconds(), worker.reporting.flush)

    def _outcome(self, operation: Operation, category: Category | None) -> AttemptOutcome:
        return AttemptOutcome(
            number=operation.state.history.next_attempt,
            started_at=self.now(),
            duration_ms=CALL_SECONDS * 1000,
            category=category,
        )


def bench_operation(number: int, created_at: datetime) -> OperationInput:
    """Returns an operation under the standard preset, with the default deadline of an hour."""
    return OperationInput(
        operation_id=f"op-{number:06d}",
        key=f"k-{number}",
        source="bench",
        dependency="bench",
        fingerprint="",
        policy=PRESETS["standard"].policy,
        timeouts=Timeouts(),
        created_at=created_at,
        deadline_at=created_at + timedelta(seconds=Timeouts().deadline_seconds),
    )


CROWD = Scenario(per_second=500, arrive_seconds=20, dead_from_seconds=0.0, dead_until_seconds=45.0)
FIRST_BREAK_SECONDS = CircuitSettings().break_seconds


async def measure(_folder: Path, _operations: int) -> list[Table]:
    """Plays the same outage once per case, and a crowd once, on a clock of its own."""
    scenario = Scenario()
    all_counts = [await Outage(scenario, *settings).run() for settings in CASES.values()]
    rows = (
        _row("calls per operation", all_counts, lambda one: f"{len(one.calls) / one.operations:.2f}"),
        _row("calls while it was dead", all_counts, lambda one: str(len(_during(one, scenario)))),
        _row("most calls in a second while dead", all_counts, lambda one: str(_most(_during(one, scenario)))),
        _row("most calls in a second after", all_counts, lambda one: str(_most(_after(one, scenario)))),
        _row("operations succeeded", all_counts, lambda one: str(one.succeeded)),
        _row("operations dead-lettered", all_counts, lambda one: str(one.dead)),
        Row(
            "last operation done after recovery",
            "s",
            tuple(f"{one.last_seconds - scenario.dead_until_seconds:.0f}" for one in all_counts),
        ),
        _row("activity runs per operation", all_counts, lambda one: f"{one.activities / one.operations:.2f}"),
        _row("reports to the circuit", all_counts, lambda one: str(one.events["report"])),
        _row("requests for a probe", all_counts, lambda one: str(one.events["permit"])),
        _row("reads of the circuit", all_counts, lambda one: str(one.events["read"])),
    )
    notes = (
        f"{scenario.per_second} operations a second for {scenario.arrive_seconds} s, on 4 processes.",
        f"Dead from {scenario.dead_from_seconds:.0f} s to {scenario.dead_until_seconds:.0f} s.",
        "Preset standard (5 attempts), every other setting the default; simulated, on a clock of its own.",
        "After: from the recovery on, new operations included.",
    )
    return [Table("Ten minutes of outage", tuple(CASES), rows, notes), await _measure_crowd()]


async def _measure_crowd() -> Table:
    crowd = await Outage(CROWD, CircuitSettings(), RetryBudgetSettings()).run()
    before = [at for at in crowd.calls if at < FIRST_BREAK_SECONDS]
    after = _after(crowd, CROWD)
    values = {
        "calls until every process knew of the trip": ("1", str(len(before))),
        "the last of them": ("s", f"{max(before):.1f}"),
        "calls in the breaks": ("1", str(len(crowd.calls) - len(before) - len(after))),
        "most calls in a second after": ("1", str(_most(after))),
        "operations succeeded": ("1", str(crowd.succeeded)),
        "last operation done after the circuit closed": ("s", f"{crowd.last_seconds - min(after):.0f}"),
        "activity runs per operation": ("1", f"{crowd.activities / crowd.operations:.1f}"),
        "reports to the circuit": ("1", str(crowd.events["report"])),
        "requests for a probe": ("1", str(crowd.events["permit"])),
        "reads of the circuit": ("1", str(crowd.events["read"])),
    }
    rows = tuple(Row(name, unit, (shown,)) for name, (unit, shown) in values.items())
    notes = (
        f"{CROWD.per_second} operations a second for {CROWD.arrive_seconds} s, on 4 processes.",
        f"Dead for {CROWD.dead_until_seconds:.0f} s, so that the first probe fails and the break doubles.",
        "Every setting the default; simulated, on a clock of its own.",
    )
    return Table("Ten thousand operations wait for one circuit", ("Durable Retry",), rows, notes)


def _row(name: str, all_counts: list[Counts], show: Show) -> Row:
    return Row(name, "1", tuple(show(one) for one in all_counts))


def _during(counts: Counts, scenario: Scenario) -> list[float]:
    return [at for at in counts.calls if scenario.dead_from_seconds <= at < scenario.dead_until_seconds]


def _after(counts: Counts, scenario: Scenario) -> list[float]:
    return [at for at in counts.calls if at >= scenario.dead_until_seconds]


def _most(calls: list[float]) -> int:
    return max(Counter(int(at) for at in calls).values(), default=0)
