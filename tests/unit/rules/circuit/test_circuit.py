"""A fleet, an outage and ten thousand operations, on a clock of our own: what the parts do together."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

import pytest

from durable_retry.base.text import deterministic_fraction
from durable_retry.rules.circuit.calls import CallEnd, CallHealth
from durable_retry.rules.circuit.reporters import ReportBuffer
from durable_retry.rules.circuit.snapshot import AskForProbe, Permit, Permitted, Refused, Snapshot, permit
from durable_retry.rules.circuit.states import CircuitState
from tests.support.builders import NOON, after
from tests.support.circuit import SETTINGS, Desk

OPERATIONS = 10_000
CALL_SECONDS = 0.1
SIGNAL_SECONDS = 0.05


@dataclass
class Operation:
    name: str
    attempt: int = 1
    waits: bool = False


@dataclass
class Worker:
    buffer: ReportBuffer
    snapshot: Snapshot | None = None


@dataclass
class Fleet:
    """Workers as the attempt activity will use the circuit; the dependency is dead until `recovers_at`."""

    recovers_at: float
    workers: list[Worker]
    desk: Desk = field(default_factory=Desk)
    events: list[tuple[float, int, Callable[[], object]]] = field(default_factory=list)
    order: "count[int]" = field(default_factory=count)
    now: float = 0.0
    calls: list[float] = field(default_factory=list)
    failures: int = 0
    succeeded: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def at(self, seconds: float, event: Callable[[], object]) -> None:
        heappush(self.events, (max(seconds, self.now), next(self.order), event))

    def run(self) -> None:
        while self.events:
            self.now, _, event = heappop(self.events)
            event()

    def wake(self, operation: Operation, worker: Worker) -> None:
        """One run of the attempt activity, up to the call."""
        self.counts["activities"] += 1
        self._act_on(self._ask_copy(operation, worker), operation, worker)

    def _ask_copy(self, operation: Operation, worker: Worker) -> Permit:
        now = after(self.now)
        if worker.snapshot is None or not worker.snapshot.is_valid(now):
            self.counts["reads"] += 1
            worker.snapshot = self.desk.read(self.now)
            worker.buffer.see(worker.snapshot)
        return permit(
            worker.snapshot,
            now,
            settings=SETTINGS,
            operation_id=operation.name,
            waiting=operation.waits,
            here=worker.buffer.here,
        )

    def _act_on(self, answer: Permit, operation: Operation, worker: Worker) -> None:
        match answer:
            case Permitted():
                self._call(operation, worker, answer)
            case Refused():
                self._wait(operation, worker, answer)
            case AskForProbe():
                worker.buffer.asked()
                self.counts["asks"] += 1
                self._act_on(self.desk.ask(self.now, operation.name), operation, worker)

    def _wait(self, operation: Operation, worker: Worker, refused: Refused) -> None:
        if not operation.waits:
            operation.waits = True
            worker.buffer.refused(after(self.now))
            self._flush_when_due(worker)
        self.at((refused.until - NOON).total_seconds(), lambda: self.wake(operation, worker))

    def _call(self, operation: Operation, worker: Worker, permitted: Permitted) -> None:
        self.calls.append(self.now)
        operation.waits = False
        worker.buffer.started(operation.attempt, after(self.now))
        is_well = self.now >= self.recovers_at
        self.at(self.now + CALL_SECONDS, lambda: self._end(operation, worker, permitted, is_well=is_well))

    def _end(self, operation: Operation, worker: Worker, permitted: Permitted, *, is_well: bool) -> None:
        health = CallHealth.SUCCESS if is_well else CallHealth.FAILURE
        worker.buffer.ended(permitted, CallEnd(health, CALL_SECONDS), after(self.now))
        self._flush_when_due(worker)
        if is_well:
            self.succeeded += 1
            return
        operation.attempt += 1
        backoff = 4 * deterministic_fraction("backoff", operation.name, str(operation.attempt))
        self.at(self.now + backoff, lambda: self.wake(operation, worker))

    def _flush_when_due(self, worker: Worker) -> None:
        due = worker.buffer.due_at()
        if due is None:
            return
        if due > after(self.now):
            self.at((due - NOON).total_seconds(), lambda: self._flush_when_due(worker))
            return
        self.counts["signals"] += 1
        report = worker.buffer.take(after(self.now))
        self.at(self.now + SIGNAL_SECONDS, lambda: self.desk.hear(report))


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    """500 operations a second for 20 s on four workers; the dependency is dead for 45 s."""
    fleet = Fleet(45.0, [Worker(ReportBuffer(f"w{number}", SETTINGS)) for number in range(4)])
    for number in range(OPERATIONS):
        operation, worker = Operation(f"op-{number:05d}"), fleet.workers[number % 4]
        fleet.at(number / 500, lambda operation=operation, worker=worker: fleet.wake(operation, worker))  # type: ignore[misc]  # mypy cannot infer a lambda's defaults
    fleet.run()
    return fleet


def test_everything_succeeds_and_the_circuit_ends_closed(fleet: Fleet) -> None:
    assert fleet.succeeded == OPERATIONS
    assert fleet.desk.read(fleet.now).state is CircuitState.CLOSED


def test_the_trip_takes_about_a_second_and_then_one_probe_goes_per_break(fleet: Fleet) -> None:
    before_trip = [at for at in fleet.calls if at < 30]
    assert max(before_trip) < 1.5
    probes = [at for at in fleet.calls if 30 <= at < 90]
    assert len(probes) == 1
    assert 30 <= probes[0] < 31


def test_those_who_waited_come_back_at_a_bounded_rate(fleet: Fleet) -> None:
    per_second = Counter(int(at) for at in fleet.calls if at >= 90)
    assert max(per_second.values()) <= 100
    assert sum(per_second.values()) == OPERATIONS


def test_they_are_all_through_in_a_bit_more_than_their_number_by_the_rate(fleet: Fleet) -> None:
    assert 90 + 190 < max(fleet.calls) < 90 + 240


def test_the_entity_hears_little_of_it(fleet: Fleet) -> None:
    assert fleet.counts["asks"] <= 40
    assert fleet.counts["signals"] < OPERATIONS / 5


def test_waiting_costs_each_operation_a_few_activities(fleet: Fleet) -> None:
    assert fleet.counts["activities"] / OPERATIONS < 5
