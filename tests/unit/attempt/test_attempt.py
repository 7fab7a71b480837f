from dataclasses import replace
from typing import Any

import pytest

from durable_retry.attempt.admission import health_shown_by, pause_asked_by, pause_requested_by
from durable_retry.base.names import Category
from durable_retry.rules.circuit.calls import CallHealth
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.policy import RetryPolicy
from durable_retry.rules.retry.retry_after import RetryHint
from tests.support.builders import NOON

POLICY = RetryPolicy(max_retry_after_seconds=300.0)
CIRCUIT = CircuitSettings()


def outcome(category: Category | None, **more: Any) -> AttemptOutcome:
    return AttemptOutcome(number=1, started_at=NOON, duration_ms=1.0, category=category, **more)


@pytest.mark.parametrize(
    ("category", "status_code", "verdict"),
    [
        (None, 200, CallHealth.SUCCESS),
        (Category.MALFORMED, 400, CallHealth.SUCCESS),
        (Category.TRANSIENT, 503, CallHealth.FAILURE),
        (Category.THROTTLED, 429, CallHealth.SILENT),
        (Category.DEADLINE_EXCEEDED, None, CallHealth.SILENT),
    ],
)
def test_an_attempt_is_judged_by_its_category(
    category: Category | None, status_code: int | None, verdict: CallHealth
) -> None:
    assert health_shown_by(outcome(category, status_code=status_code)) is verdict


def test_an_attempt_that_never_left_says_nothing_of_the_dependency() -> None:
    assert health_shown_by(outcome(Category.TRANSIENT, counted=False)) is CallHealth.SILENT


def test_a_throttled_answer_asks_for_a_pause_within_what_the_policy_allows() -> None:
    asked = outcome(Category.THROTTLED, retry_hint=RetryHint(20.0))
    assert pause_requested_by(asked, POLICY, CIRCUIT) == 20
    long = outcome(Category.THROTTLED, retry_hint=RetryHint(9_000.0))
    assert pause_requested_by(long, POLICY, CIRCUIT) == 1_800
    assert pause_requested_by(long, POLICY, replace(CIRCUIT, max_pause_seconds=60)) == 300
    assert pause_requested_by(long, replace(POLICY, respect_retry_after=False), CIRCUIT) is None
    assert pause_requested_by(long, POLICY, replace(CIRCUIT, enabled=False)) is None


def test_a_pause_says_what_asked_for_it_for_how_long_and_what_of_it_is_kept() -> None:
    asked = outcome(Category.THROTTLED, status_code=429, retry_hint=RetryHint(7_200.0))
    assert pause_asked_by(asked, 7_200) == "429 (Retry-After 7200 s)"
    assert pause_asked_by(asked, 1_800) == "429 (Retry-After 7200 s, kept for 1800 s)"
    assert pause_asked_by(asked, 7_200, "customer-17") == "429 for customer-17 (Retry-After 7200 s)"
    assert pause_asked_by(replace(asked, status_code=None), 7_200) == "its handler (Retry-After 7200 s)"
    assert pause_asked_by(replace(asked, category=None), 7_200) == "its rate limit (Retry-After 7200 s)"
    assert pause_asked_by(replace(asked, retry_hint=None), 7_200) == "429"


def test_a_success_that_used_up_the_rate_limit_asks_for_a_pause() -> None:
    last = outcome(None, retry_hint=RetryHint(20.0, "RateLimit"))
    assert pause_requested_by(last, POLICY, CIRCUIT) == 20


@pytest.mark.parametrize(
    ("category", "hint"),
    [
        (None, None),
        (Category.TRANSIENT, RetryHint(20.0)),
        (Category.THROTTLED, None),
        (Category.THROTTLED, RetryHint(0.0, source="", notes=("not readable",))),
    ],
)
def test_nothing_else_pauses_the_dependency(category: Category | None, hint: RetryHint | None) -> None:
    assert pause_requested_by(outcome(category, retry_hint=hint), POLICY, CIRCUIT) is None
