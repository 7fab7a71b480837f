"""An outage on a clock of its own: what a fleet sends to a dependency that is dead for ten minutes.

The workers' side is the app's own (`stores.circuit_copy`, `engine.decide`); the task hub is replaced by a
circuit in this process, whose reports arrive a moment after they were sent, and time by a heap of events.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count

from engine.budget import BudgetPostponed, RetryBudgetSettings
from engine.circuit import (
    Breaker,
    CircuitSettings,
    Permitted,
    Refused,
    ReportBuffer,
    ReportMessage,
    Verdict,
)
from engine.decide import CLOSED, DeadLetter, Done, RetryAt, decide, postpone, record
from engine.gate import NeedsProbe, Stop, Ticket, hold_of, probe_message, view_at
from engine.operation import AttemptOutcome, History, OperationInput
from engine.policy import PRESETS, Timeouts
from engine.vocabulary import Category
from stores.circuit_copy import CircuitCopy
from stores.circuit_reporting import Gate

START = datetime(2026, 1, 1, tzinfo=UTC)
CALL_SECONDS = 0.1
SIGNAL_SECONDS = 0.05
WORKERS = 4

type Event = Callable[[], Awaitable[None]]


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
class Tally:
    """What came of it.

    Attributes:
        operations: How many there were.
        calls: When each call came, in seconds since the start.
        succeeded: How many succeeded.
        dead: How many became dead letters.
        last_seconds: When the last one ended.
        activities: Runs of the attempt activity.
        events: Reports and requests for probes that the circuit got, and readings of it.
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
    worker: CircuitCopy
    history: History = field(default_factory=History)
    ticket: Ticket = field(default_factory=Ticket)


class Outage:
    """A fleet through an outage; a `stores.circuit_entity.SharedCircuit` besides."""

    def __init__(self, scenario: Scenario, circuit: CircuitSettings, budget: RetryBudgetSettings) -> None:
        self.scenario = scenario
        self.gate = Gate("bench", circuit, budget)
        self.breaker = Breaker()
        self.tally = Tally()
        self.seconds = 0.0
        self._events: list[tuple[float, int, Event]] = []
        self._order = count()
        self._workers = [
            CircuitCopy(self.gate, self, ReportBuffer(f"w{number}", circuit), self.now)
            for number in range(WORKERS)
        ]

    def now(self) -> datetime:
        """Returns the present of this world."""
        return START + timedelta(seconds=self.seconds)

    async def read(self) -> Breaker:
        """As a worker reads the entity."""
        self.tally.events["read"] += 1
        return self.breaker

    async def report(self, message: ReportMessage) -> None:
        """As a worker signals the entity: it arrives a moment later."""
        self.tally.events["report"] += 1

        async def arrive() -> None:
            self.breaker = message.apply(self.breaker)

        self._at(self.seconds + SIGNAL_SECONDS, arrive)

    async def run(self) -> Tally:
        """Plays until every operation has ended."""
        scenario = self.scenario
        for number in range(scenario.per_second * scenario.arrive_seconds):
            self._arrive(number, number / scenario.per_second)
        while self._events:
            self.seconds, _, event = heappop(self._events)
            await event()
        for worker in self._workers:
            worker.reporting.close()
        return self.tally

    def _arrive(self, number: int, at_seconds: float) -> None:
        given = an_operation(number, START + timedelta(seconds=at_seconds))
        operation = Operation(given, self._workers[number % WORKERS])
        self.tally.operations += 1
        self._at(at_seconds, lambda: self._wake(operation))

    def _at(self, seconds: float, event: Event) -> None:
        heappush(self._events, (max(seconds, self.seconds), next(self._order), event))

    def _when(self, instant: datetime, operation: Operation) -> None:
        self._at((instant - START).total_seconds(), lambda: self._wake(operation))

    async def _wake(self, operation: Operation) -> None:
        self.tally.activities += 1
        attempt = operation.history.next_attempt
        if self.gate.is_open:
            self._call(operation, Permitted(0))
            return
        answer = await operation.worker.enter(operation.given.operation_id, attempt, operation.ticket)
        self._ring_for(operation.worker)
        self._go_on(operation, answer)

    def _go_on(self, operation: Operation, answer: Permitted | Stop) -> None:
        match answer:
            case Permitted():
                self._call(operation, answer)
            case NeedsProbe():
                self._ask(operation, answer)
            case Refused():
                self._refuse(operation, answer)
            case BudgetPostponed():
                hold = hold_of(answer, "bench")
                operation.ticket = Ticket(operation.ticket.waiting, answer.reserved)
                self._follow(operation, postpone(operation.given, hold, self.now()))

    def _ask(self, operation: Operation, needs: NeedsProbe) -> None:
        self.tally.events["permit"] += 1
        message = probe_message(operation.given, operation.history.next_attempt, needs.settings, self.now())
        self.breaker, answer = message.apply(self.breaker)
        if isinstance(answer, Permitted):
            operation.ticket = Ticket(waiting=True, promised=operation.ticket.promised, permit=answer)
            self._at(self.seconds, lambda: self._wake(operation))
        else:
            self._refuse(operation, answer)

    def _refuse(self, operation: Operation, refused: Refused) -> None:
        operation.ticket = Ticket(waiting=True, promised=operation.ticket.promised)
        outcome = self._outcome(operation, Category.CIRCUIT_OPEN, counted=False)
        decision = decide(
            operation.given, operation.history, outcome, view_at(refused, self.now()), self.now()
        )
        operation.history = record(operation.history, outcome, decision)
        self._follow(operation, decision)

    def _call(self, operation: Operation, permitted: Permitted) -> None:
        self.tally.calls.append(self.seconds)
        is_dead = self.scenario.dead_from_seconds <= self.seconds < self.scenario.dead_until_seconds
        self._at(self.seconds + CALL_SECONDS, lambda: self._end(operation, permitted, is_dead=is_dead))

    async def _end(self, operation: Operation, permitted: Permitted, *, is_dead: bool) -> None:
        if not self.gate.is_open:
            verdict = Verdict.FAILURE if is_dead else Verdict.SUCCESS
            await operation.worker.leave(permitted, verdict, duration_seconds=CALL_SECONDS)
            self._ring_for(operation.worker)
        outcome = self._outcome(operation, Category.TRANSIENT if is_dead else None, counted=True)
        decision = decide(operation.given, operation.history, outcome, CLOSED, self.now())
        operation.history = record(operation.history, outcome, decision)
        operation.ticket = Ticket()
        self._follow(operation, decision)

    def _follow(self, operation: Operation, decision: object) -> None:
        match decision:
            case Done():
                self.tally.succeeded += 1
                self.tally.last_seconds = self.seconds
            case DeadLetter():
                self.tally.dead += 1
                self.tally.last_seconds = self.seconds
            case RetryAt(at=at):
                self._when(at, operation)
            case _:
                self._when(decision.until, operation)  # type: ignore[attr-defined] # the only one left waits

    def _ring_for(self, worker: CircuitCopy) -> None:
        """In the app a timer of the loop does this."""
        due = worker.reporting.next_report_at()
        if due is not None:
            self._at((due - START).total_seconds(), worker.reporting.flush)

    def _outcome(self, operation: Operation, category: Category | None, *, counted: bool) -> AttemptOutcome:
        return AttemptOutcome(
            number=operation.history.next_attempt,
            started_at=self.now(),
            duration_ms=CALL_SECONDS * 1000,
            category=category,
            counted=counted,
        )


def an_operation(number: int, created_at: datetime) -> OperationInput:
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
