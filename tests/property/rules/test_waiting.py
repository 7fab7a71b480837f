"""Whatever the policy, the attempt and the circumstances: what holds for every wait and every decision."""

import math
from datetime import timedelta
from itertools import pairwise
from statistics import mean

from hypothesis import assume, given
from hypothesis import strategies as st

from durable_retry.base.names import Category, DeadLetterReason
from durable_retry.features.preview.rules import preview
from durable_retry.rules.circuit.retry_budget import BudgetPostponed
from durable_retry.rules.circuit.snapshot import Refused
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.backoff import backoff, bounds_of, ceiling_seconds
from durable_retry.rules.retry.constraints import latest_start
from durable_retry.rules.retry.decide import (
    DeadLetter,
    Done,
    Wait,
    after_attempt,
    overdue,
    record,
    while_blocked,
)
from durable_retry.rules.retry.history import AttemptOutcome, History
from durable_retry.rules.retry.policy import RetryPolicy, Timeouts
from durable_retry.rules.retry.retry_after import RetryHint
from tests.support.builders import NOON, a_record, after, an_operation, an_outcome

YEAR = 31_536_000.0
seconds = st.floats(min_value=0, max_value=YEAR)
attempts = st.one_of(st.integers(1, 30), st.integers(1, 10**9), st.sampled_from([1_024, 1_025, 10**9]))
policies = st.builds(
    RetryPolicy,
    strategy=st.sampled_from(["exponential", "linear", "fixed", "schedule"]),
    max_attempts=st.one_of(st.just(-1), st.integers(1, 10)),
    initial_seconds=seconds,
    factor=st.floats(min_value=1, max_value=100),
    max_seconds=seconds,
    schedule_seconds=st.lists(seconds, min_size=1, max_size=5).map(tuple),
    jitter=st.sampled_from(["full", "equal", "none"]),
    respect_retry_after=st.booleans(),
    max_retry_after_seconds=seconds,
)
instants = st.floats(min_value=-1_000, max_value=10_000).map(after)
refusals = st.builds(
    lambda base, waiting: Refused(base=base, waiting=waiting, until=base, reason="open"),
    instants,
    st.integers(0, 100_000),
)
postponements = st.builds(BudgetPostponed, until=st.floats(0, 10_000).map(after), reserved=st.booleans())
hints = st.none() | st.builds(RetryHint, delay_seconds=seconds)
outcomes = st.builds(
    AttemptOutcome,
    number=attempts,
    started_at=st.just(NOON),
    duration_ms=st.just(1.0),
    category=st.none() | st.sampled_from(list(Category)),
    retry_hint=hints,
    counted=st.booleans(),
)
operations = st.builds(
    lambda policy, timeouts, deadline_in: an_operation(
        policy=policy, timeouts=timeouts, deadline_in=deadline_in
    ),
    policies,
    st.builds(
        Timeouts,
        connect_seconds=st.floats(min_value=0.01, max_value=60),
        attempt_seconds=st.floats(min_value=0.01, max_value=600),
    ),
    st.none() | st.floats(min_value=-10, max_value=20_000),
)
histories = st.builds(
    lambda delay, own: History(
        attempts=(a_record(next_delay_seconds=delay),), attempt_count=1, own_failures=own
    ),
    st.none() | seconds,
    st.integers(0, 10**9),
)


@given(policies, attempts)
def test_every_wait_lies_inside_its_bounds(policy: RetryPolicy, attempt: int) -> None:
    bounds = bounds_of(policy, attempt)
    wait = backoff(policy, "op-1", attempt).delay_seconds
    cap = max(policy.schedule_seconds) if policy.strategy == "schedule" else policy.max_seconds
    assert 0 <= bounds.least <= wait <= bounds.most <= cap


@given(policies, st.integers(1, 10**9 - 1))
def test_computed_waits_never_shrink_with_the_attempts(policy: RetryPolicy, attempt: int) -> None:
    assume(policy.strategy != "schedule")
    shorter, longer = ceiling_seconds(policy, attempt), ceiling_seconds(policy, attempt + 1)
    assert shorter <= longer or math.isclose(shorter, longer)


@given(policies)
def test_a_preview_holds_every_wait_that_can_happen(policy: RetryPolicy) -> None:
    for wait in preview(policy, Timeouts(deadline_seconds=0)).waits[:8]:
        drawn = backoff(policy, "op-1", wait.after_attempt).delay_seconds
        assert wait.least_seconds <= wait.expected_seconds <= wait.most_seconds
        assert wait.least_seconds <= drawn <= wait.most_seconds


@given(operations, histories, outcomes, refusals | postponements)
def test_no_wait_passes_the_deadline(
    operation: OperationInput, history: History, outcome: AttemptOutcome, blocked: Refused | BudgetPostponed
) -> None:
    if operation.deadline_at is None:
        return
    last = latest_start(operation.deadline_at, operation.timeouts)
    for decision in (
        after_attempt(operation, history, outcome, NOON),
        while_blocked(operation, blocked, NOON),
    ):
        if isinstance(decision, Wait):
            assert decision.until <= last


@given(operations, histories, outcomes)
def test_a_retry_comes_no_earlier_than_the_dependency_asked_for(
    operation: OperationInput, history: History, outcome: AttemptOutcome
) -> None:
    decision = after_attempt(operation, history, outcome, NOON)
    if not isinstance(decision, Wait):
        return
    assert decision.until >= NOON
    assert decision.delay_seconds == (decision.until - NOON).total_seconds()
    assert decision.reasons
    if outcome.counted and outcome.retry_hint is not None and operation.policy.respect_retry_after:
        wish = min(outcome.retry_hint.delay_seconds, operation.policy.max_retry_after_seconds)
        assert decision.until >= NOON + timedelta(seconds=wish)


@given(operations, refusals | postponements)
def test_a_blocked_attempt_waits_no_less_than_what_blocks_it_says(
    operation: OperationInput, blocked: Refused | BudgetPostponed
) -> None:
    decision = while_blocked(operation, blocked, NOON)
    if isinstance(decision, Wait):
        assert decision.kind is not None
        assert decision.until >= (blocked.base if isinstance(blocked, Refused) else blocked.until)


@given(operations, histories, outcomes)
def test_what_must_not_be_retried_never_is(
    operation: OperationInput, history: History, outcome: AttemptOutcome
) -> None:
    decision = after_attempt(operation, history, outcome, NOON)
    if outcome.category is None:
        assert decision == Done()
    elif outcome.category in {Category.AMBIGUOUS, Category.UNAUTHORIZED} and not outcome.counted:
        assert isinstance(decision, Wait | DeadLetter)
    elif outcome.category not in {Category.TRANSIENT, Category.THROTTLED}:
        assert isinstance(decision, DeadLetter)
        assert decision.category is outcome.category
    else:
        assert isinstance(decision, Wait | DeadLetter)
    used_up = outcome.counted and operation.policy.max_attempts != -1
    if isinstance(decision, Wait) and used_up:
        assert outcome.number < operation.policy.max_attempts


@given(operations, histories, outcomes, refusals | postponements)
def test_the_same_input_gives_the_same_decision(
    operation: OperationInput, history: History, outcome: AttemptOutcome, blocked: Refused | BudgetPostponed
) -> None:
    again = OperationInput.from_json(operation.to_json())
    first = after_attempt(operation, history, outcome, NOON)
    assert after_attempt(again, History.from_json(history.to_json()), outcome, NOON) == first
    assert while_blocked(again, blocked, NOON) == while_blocked(operation, blocked, NOON)


@given(operations, histories, outcomes)
def test_only_counted_attempts_are_counted(
    operation: OperationInput, history: History, outcome: AttemptOutcome
) -> None:
    kept = record(history, outcome, after_attempt(operation, history, outcome, NOON))
    assert kept.attempt_count == (outcome.number if outcome.counted else history.attempt_count)


@given(operations)
def test_an_attempt_after_the_first_is_made_before_the_deadline_only(operation: OperationInput) -> None:
    late = overdue(operation, History(attempt_count=1), NOON, NOON)
    if late is None:
        assert operation.deadline_at is None or operation.deadline_at > NOON
    else:
        assert late.reason is DeadLetterReason.DEADLINE_EXCEEDED


def test_an_operation_that_always_fails_makes_exactly_its_attempts() -> None:
    operation, history, now, made = an_operation(), History(), NOON, 0
    while True:
        made += 1
        outcome = an_outcome(number=history.next_attempt)
        decision = after_attempt(operation, history, outcome, now)
        history = record(history, outcome, decision)
        if not isinstance(decision, Wait):
            break
        now = decision.until
    assert made == operation.policy.max_attempts == history.attempt_count
    assert history.attempts[-1].next_delay_seconds is None


DRAWS = 20_000


def shares_of(policy: RetryPolicy, *, over_attempts: bool) -> list[float]:
    """Give where in its bounds each of many waits lies; always the same names, so always the same."""
    names = (
        [("op-1", n + 6) for n in range(DRAWS)] if over_attempts else [(f"op-{n}", 6) for n in range(DRAWS)]
    )
    bounds = bounds_of(policy, 6)
    width = bounds.most - bounds.least
    return [(backoff(policy, *name).delay_seconds - bounds.least) / width for name in names]


def test_jitter_is_uniform_over_operations_and_over_attempts() -> None:
    """Chi-squared over 100 cells: 99 degrees of freedom stay under 148.2 in 999 of 1,000 uniform samples."""
    for jitter in ("full", "equal"):
        for over_attempts in (True, False):
            shares = shares_of(RetryPolicy(jitter=jitter), over_attempts=over_attempts)
            cells = [0] * 100
            for share in shares:
                cells[min(99, int(share * 100))] += 1
            expected = DRAWS / 100
            assert sum((cell - expected) ** 2 / expected for cell in cells) < 148.2
            assert abs(mean(shares) - 0.5) < 4 / math.sqrt(12 * DRAWS)


def test_consecutive_attempts_draw_independently() -> None:
    """The lag-one correlation of N independent draws has a standard deviation of 1 / sqrt(N)."""
    shares = shares_of(RetryPolicy(), over_attempts=True)
    middle = mean(shares)
    pairs = pairwise(shares)
    covariance = mean((one - middle) * (next_ - middle) for one, next_ in pairs)
    variance = mean((share - middle) ** 2 for share in shares)
    assert abs(covariance / variance) < 4 / math.sqrt(DRAWS)
