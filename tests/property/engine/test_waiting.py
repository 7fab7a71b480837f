"""Whatever the policy, the attempt and the circumstances: what holds for every wait and every decision."""

import math
from datetime import timedelta
from itertools import pairwise
from statistics import mean

from hypothesis import assume, given
from hypothesis import strategies as st

from engine.backoff import backoff, bounds_of, ceiling_seconds
from engine.deadline import latest_start
from engine.decide import (
    CircuitView,
    DeadLetter,
    Done,
    RetryAt,
    WaitForCircuit,
    decide,
    overdue,
    record,
)
from engine.operation import AttemptOutcome, History, OperationInput
from engine.policy import RetryPolicy, Timeouts
from engine.preview import preview
from engine.retry_after import RetryHint
from engine.vocabulary import RETRYABLE, Category, DeadLetterReason
from tests.engine_samples import NOON, a_record, after, an_operation, an_outcome

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
    jitter=st.sampled_from(["full", "equal", "decorrelated", "none"]),
    respect_retry_after=st.booleans(),
    max_retry_after_seconds=seconds,
)
instants = st.floats(min_value=-1_000, max_value=10_000).map(after)
circuits = st.builds(
    CircuitView,
    refuses=st.booleans(),
    retry_at=st.none() | instants,
    waiting=st.integers(0, 100_000),
)
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


@given(policies, attempts, st.none() | seconds)
def test_every_wait_lies_inside_its_bounds(policy: RetryPolicy, attempt: int, previous: float | None) -> None:
    bounds = bounds_of(policy, attempt, previous)
    wait = backoff(policy, "op-1", attempt, previous).delay_seconds
    cap = max(policy.schedule_seconds) if policy.strategy == "schedule" else policy.max_seconds
    assert 0 <= bounds.least <= wait <= bounds.most <= cap


@given(policies, st.integers(1, 10**9 - 1))
def test_computed_waits_never_shrink_with_the_attempts(policy: RetryPolicy, attempt: int) -> None:
    assume(policy.strategy != "schedule")
    shorter, longer = ceiling_seconds(policy, attempt), ceiling_seconds(policy, attempt + 1)
    assert shorter <= longer or math.isclose(shorter, longer)


@given(policies)
def test_a_preview_holds_every_wait_that_can_happen(policy: RetryPolicy) -> None:
    previous = None
    for wait in preview(policy, Timeouts(deadline_seconds=0)).waits[:8]:
        drawn = backoff(policy, "op-1", wait.after_attempt, previous).delay_seconds
        assert wait.least_seconds <= wait.expected_seconds <= wait.most_seconds
        assert wait.least_seconds <= drawn <= wait.most_seconds
        previous = drawn


@given(operations, histories, outcomes, circuits)
def test_no_decision_passes_the_deadline(
    operation: OperationInput,
    history: History,
    outcome: AttemptOutcome,
    circuit: CircuitView,
) -> None:
    decision = decide(operation, history, outcome, circuit, NOON)
    if operation.deadline_at is not None:
        last = latest_start(operation.deadline_at, operation.timeouts)
        match decision:
            case RetryAt():
                assert decision.at <= last
            case WaitForCircuit():
                assert decision.until <= last
            case DeadLetter() | Done():
                pass


@given(operations, histories, outcomes, circuits)
def test_a_retry_comes_no_earlier_than_anything_told(
    operation: OperationInput,
    history: History,
    outcome: AttemptOutcome,
    circuit: CircuitView,
) -> None:
    decision = decide(operation, history, outcome, circuit, NOON)
    if not isinstance(decision, RetryAt):
        return
    assert decision.at >= NOON
    assert decision.delay_seconds == (decision.at - NOON).total_seconds()
    assert decision.reasons
    if circuit.refuses and circuit.retry_at is not None:
        assert decision.at >= circuit.retry_at
    if outcome.retry_hint is not None and operation.policy.respect_retry_after:
        told = min(outcome.retry_hint.delay_seconds, operation.policy.max_retry_after_seconds)
        assert decision.at >= NOON + timedelta(seconds=told)


@given(operations, histories, outcomes, circuits)
def test_what_must_not_be_retried_never_is(
    operation: OperationInput, history: History, outcome: AttemptOutcome, circuit: CircuitView
) -> None:
    decision = decide(operation, history, outcome, circuit, NOON)
    if outcome.category is None:
        assert decision == Done()
    elif outcome.category is Category.CIRCUIT_OPEN:
        assert isinstance(decision, WaitForCircuit | DeadLetter)
    elif outcome.category not in RETRYABLE:
        assert isinstance(decision, DeadLetter)
        assert decision.category is outcome.category
    else:
        assert isinstance(decision, RetryAt | DeadLetter)
    used_up = outcome.counted and operation.policy.max_attempts != -1
    if isinstance(decision, RetryAt) and used_up:
        assert outcome.number < operation.policy.max_attempts


@given(operations, histories, outcomes, circuits)
def test_the_same_input_gives_the_same_decision(
    operation: OperationInput,
    history: History,
    outcome: AttemptOutcome,
    circuit: CircuitView,
) -> None:
    again = OperationInput.from_json(operation.to_json())
    first = decide(operation, history, outcome, circuit, NOON)
    assert decide(again, History.from_json(history.to_json()), outcome, circuit, NOON) == first


@given(operations, histories, outcomes, circuits)
def test_only_counted_attempts_are_counted(
    operation: OperationInput, history: History, outcome: AttemptOutcome, circuit: CircuitView
) -> None:
    kept = record(history, outcome, decide(operation, history, outcome, circuit, NOON))
    counts = outcome.counted and outcome.category is not Category.CIRCUIT_OPEN
    assert kept.attempt_count == (outcome.number if counts else history.attempt_count)


@given(operations)
def test_an_attempt_is_made_before_the_deadline_only(operation: OperationInput) -> None:
    late = overdue(operation, History(), NOON)
    if late is None:
        assert operation.deadline_at is None or operation.deadline_at > NOON
    else:
        assert late.reason is DeadLetterReason.DEADLINE_EXCEEDED


def test_an_operation_that_always_fails_makes_exactly_its_attempts() -> None:
    operation, history, now, made = an_operation(), History(), NOON, 0
    while True:
        made += 1
        outcome = an_outcome(number=history.next_attempt)
        decision = decide(operation, history, outcome, CircuitView(), now)
        history = record(history, outcome, decision)
        if not isinstance(decision, RetryAt):
            break
        now = decision.at
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
    for jitter in ("full", "equal", "decorrelated"):
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
