"""A fleet that spends from copies: what it sends in all, whatever it asks for."""

from dataclasses import dataclass, field
from datetime import timedelta
from heapq import heapify, heappop, heappush
from itertools import cycle

from hypothesis import given, settings
from hypothesis import strategies as st

from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.messages import snapshot_of
from durable_retry.rules.circuit.reporters import ReportBuffer, Reporters
from durable_retry.rules.circuit.retry_budget import (
    CREDIT_SECONDS,
    HEARD_SECONDS,
    Budget,
    BudgetAllowed,
    BudgetPostponed,
    BudgetSnapshot,
    RetryBudgetSettings,
    account,
    budget_allows,
    budget_snapshot,
)
from durable_retry.rules.circuit.snapshot import Snapshot
from tests.support.builders import NOON, after
from tests.support.circuit import SETTINGS
from tests.support.narrowing import existing

SECONDS = 60


@dataclass
class Fleet:
    """Workers that read once a second and report at its end; `firsts` first attempts a second in all."""

    workers: int
    firsts: int
    budget_settings: RetryBudgetSettings
    budget: Budget = field(default_factory=Budget)
    sent_at: list[float] = field(default_factory=list)

    def run_second(self, second: int, wanted: list[int]) -> None:
        copy = budget_snapshot(
            self.budget, now=after(second), settings=self.budget_settings, reporters=self.workers
        )
        taken_by = [0] * self.workers
        for worker in range(self.workers):
            for number in range(wanted[worker]):
                answer = budget_allows(
                    copy,
                    after(second),
                    settings=self.budget_settings,
                    taken_here=taken_by[worker],
                    operation_id=f"{second}-{worker}-{number}",
                )
                if isinstance(answer, BudgetPostponed) and not answer.reserved:
                    continue
                taken_by[worker] += 1
                until = after(second) if isinstance(answer, BudgetAllowed) else answer.until
                self.sent_at.append((until - NOON).total_seconds())
        self.budget = account(
            self.budget,
            at=after(second),
            first_attempts=self.firsts,
            retries=sum(taken_by),
            settings=self.budget_settings,
        )


@settings(max_examples=15, deadline=None)
@given(
    workers=st.integers(1, 4),
    firsts=st.integers(0, 50),
    ratio=st.sampled_from([0.1, 0.2, 0.5]),
    minimum=st.sampled_from([0.5, 1.0, 5.0]),
    demand=st.lists(st.lists(st.integers(0, 20), min_size=4, max_size=4), min_size=SECONDS, max_size=SECONDS),
)
def test_a_fleet_never_retries_more_than_its_credit_and_its_supply(
    workers: int, firsts: int, ratio: float, minimum: float, demand: list[list[int]]
) -> None:
    fleet = Fleet(workers, firsts, RetryBudgetSettings(ratio=ratio, minimum_per_second=minimum))
    for second, wanted in enumerate(demand):
        fleet.run_second(second, wanted)
    supply = minimum + ratio * firsts
    for second in range(SECONDS):
        sent = sum(at < second + 1 for at in fleet.sent_at)
        # The credit at the start and of ten quiet seconds, the supply since, one copy's overdraft, and a
        # place that is at most one token per worker early.
        assert sent <= CREDIT_SECONDS * (minimum + supply) + supply * (second + 1) + 2 * workers + 1


@dataclass
class Restarts:
    """Processes that are replaced one after the other; each reads once a second and reports at its end.

    A copy is half a second old when it is used, and a report arrives before the next copy.
    """

    restart_every: int
    workers: int
    terms: RetryBudgetSettings = field(default_factory=RetryBudgetSettings)
    budget: Budget = field(default_factory=Budget)
    reporters: Reporters = field(default_factory=Reporters)
    sent: int = 0

    def run(self, demand: list[list[int]]) -> list[int]:
        """Returns how many retries were sent by the end of each second."""
        processes = [self.process(worker, 0) for worker in range(self.workers)]
        totals = []
        for second, wanted in enumerate(demand):
            if second and second % self.restart_every == 0:
                which = second // self.restart_every % self.workers
                processes[which] = self.process(which, second)
            for process in processes:
                process.see(self.snapshot(process.reporter, second), reporters=self.reporters)
            for process, number in zip(processes, wanted, strict=False):
                self.retry(process, number, second)
            for process in processes:
                self.report(process, second)
            totals.append(self.sent)
        return totals

    def process(self, worker: int, second: int) -> ReportBuffer:
        return ReportBuffer(f"{worker}-{second}", SETTINGS)

    def snapshot(self, name: str, second: int) -> Snapshot:
        breaker = Breaker(budget=self.budget, reporters=self.reporters)
        return snapshot_of(breaker, after(second), settings=SETTINGS, budget_settings=self.terms, reader=name)

    def retry(self, process: ReportBuffer, number: int, second: int) -> None:
        copy = existing(self.snapshot(process.reporter, second).budget)
        for each in range(number):
            answer = budget_allows(
                copy,
                after(second + 0.5),
                settings=self.terms,
                taken_here=process.here.retries,
                operation_id=f"{process.reporter}-{second}-{each}",
                taken_as_newcomer=process.taken_as_newcomer(after(second + 0.5)),
            )
            if isinstance(answer, BudgetAllowed):
                process.started(2, after(second + 0.5))
                self.sent += 1
            elif not answer.reserved:
                process.announce(after(second + 0.5))

    def report(self, process: ReportBuffer, second: int) -> None:
        if process.due_at() is None:
            return
        report = process.take(after(second + 0.9))
        self.reporters = self.reporters.with_report(report.reporter, report.sequence, report.at)
        self.budget = account(
            self.budget, at=report.at, first_attempts=0, retries=report.retries, settings=self.terms
        )


@settings(max_examples=15, deadline=None)
@given(
    workers=st.integers(1, 4),
    restart_every=st.integers(1, 20),
    demand=st.lists(st.lists(st.integers(0, 60), min_size=4, max_size=4), min_size=SECONDS, max_size=SECONDS),
)
def test_a_rolling_restart_allows_no_more_however_many_processes_are_replaced(
    workers: int, restart_every: int, demand: list[list[int]]
) -> None:
    fleet = Restarts(restart_every, workers)
    supply = fleet.terms.minimum_per_second
    for second, sent in enumerate(fleet.run(demand)):
        replaced = workers + second // restart_every
        # The credit and the supply; each process has one token before it is counted, and the first ones, of
        # which none knows of another, each have the credit.
        assert sent <= workers * CREDIT_SECONDS * supply + supply * (second + 1) + replaced


@settings(max_examples=15, deadline=None)
@given(
    debts=st.lists(st.integers(0, 500), min_size=1, max_size=20),
    seconds=st.lists(st.floats(0, 100), min_size=20, max_size=20),
)
def test_a_debt_is_always_paid_in_the_time_that_it_was_promised_for(
    debts: list[int], seconds: list[float]
) -> None:
    terms, budget, now = RetryBudgetSettings(), Budget(), 0.0
    for debt, pause in zip(debts, seconds, strict=False):
        now += pause
        budget = account(budget, at=after(now), first_attempts=0, retries=debt, settings=terms)
    owed = max(0.0, -budget.tokens)
    later = budget_snapshot(
        budget, now=after(now + owed / terms.minimum_per_second), settings=terms, reporters=1
    )
    assert later.tokens >= -0.001


DEBT = 5


@dataclass
class Worker:
    copy: BudgetSnapshot | None = None
    taken: int = 0  # tokens that were not reported
    asking_again: int = 0  # retries that it told to since the copy
    heard_at: float = 0.0


def gone_at(workers: int, due_at: list[float], asks_at: list[int]) -> list[float]:
    """Return when retries go, the first one first, if a token comes each second and nobody else calls.

    Each asks at the worker that is next in `asks_at`. A worker reports a second after it took a token.
    """
    terms, fleet = RetryBudgetSettings(), [Worker() for _ in range(workers)]
    budget, gone, where = Budget(tokens=-DEBT, at=NOON), list[float](), cycle(asks_at)
    events = [(at, number, f"op-{number}") for number, at in enumerate(due_at)]
    heapify(events)
    while events:
        at, number, name = heappop(events)
        if not name:
            reporting = fleet[number]
            budget = account(budget, at=after(at), first_attempts=0, retries=reporting.taken, settings=terms)
            reporting.taken, reporting.heard_at = 0, at
            continue
        number_of_worker = next(where) % workers
        worker = fleet[number_of_worker]
        if worker.copy is None or worker.copy.taken_at + timedelta(seconds=1) < after(at):
            worker.asking_again = 0
            heard = sum(each.heard_at >= at - HEARD_SECONDS or each is worker for each in fleet)
            worker.copy = budget_snapshot(budget, now=after(at), settings=terms, reporters=heard)
        answer = budget_allows(
            worker.copy,
            after(at),
            settings=terms,
            taken_here=worker.taken,
            operation_id=name,
            asking_again_here=worker.asking_again,
        )
        until = at if isinstance(answer, BudgetAllowed) else (answer.until - NOON).total_seconds()
        if isinstance(answer, BudgetPostponed) and not answer.reserved:
            worker.asking_again += 1
            heappush(events, (until, number, name))
            continue
        gone.append(until)
        worker.taken += 1
        if worker.taken == 1:
            heappush(events, (at + 1.02, number_of_worker, ""))
    return sorted(gone)


@settings(max_examples=50, deadline=None)
@given(
    workers=st.integers(1, 20),
    due_at=st.lists(st.floats(0, 5), min_size=1, max_size=60),
    asks_at=st.lists(st.integers(0, 19), min_size=1, max_size=60),
)
def test_a_retry_goes_when_it_is_paid_for_whichever_workers_have_them(
    workers: int, due_at: list[float], asks_at: list[int]
) -> None:
    for number, at in enumerate(gone_at(workers, due_at, asks_at), start=1):
        assert at <= DEBT + number + 4.0
