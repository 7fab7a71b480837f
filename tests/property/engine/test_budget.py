"""A fleet that spends from copies: what it sends in all, whatever it asks for."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from durable_retry.engine.circuit.retry_budget import (
    CREDIT_SECONDS,
    Budget,
    BudgetAllowed,
    RetryBudgetSettings,
    account,
    budget_allows,
    budget_snapshot,
)
from tests.support.builders import NOON, after

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


@settings(max_examples=50, deadline=None)
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


@settings(max_examples=50, deadline=None)
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
