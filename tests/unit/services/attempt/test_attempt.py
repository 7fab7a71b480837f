""""""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.engine.base.names import Category
from durable_retry.engine.circuit.calls import CallHealth
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.engine.retry.policy import RetryPolicy
from durable_retry.engine.retry.retry_after import RetryHint
from durable_retry.services.attempt.admission import health_shown_by, pause_asked_by, pause_requested_by
from tests.support.builders import NOON

POLICY = RetryPolicy(max_retry_after_seconds=300.0)


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
    assert pause_requested_by(asked, POLICY, NOON) == NOON + timedelta(seconds=20)
    long = outcome(Category.THROTTLED, retry_hint=RetryHint(9_000.0))
    assert pause_requested_by(long, POLICY, NOON) == NOON + timedelta(seconds=300)
    assert pause_requested_by(long, replace(POLICY, respect_retry_after=False), NOON) is None


def test_the_pause_of_a_key_names_it() -> None:
    asked = outcome(Category.THROTTLED, status_code=429)
    assert [pause_asked_by(asked, key) for key in (None, "customer-17")] == ["429", "429 for customer-17"]
    assert pause_asked_by(outcome(Category.THROTTLED)) == "its handler"
    assert pause_asked_by(outcome(None), "customer-17") == "its rate limit for customer-17"


def test_a_success_that_used_up_the_rate_limit_asks_for_a_pause() -> None:
    last = outcome(None, retry_hint=RetryHint(20.0, "RateLimit"))
    assert pause_requested_by(last, POLICY, NOON) == NOON + timedelta(seconds=20)


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
    assert pause_requested_by(outcome(category, retry_hint=hint), POLICY, NOON) is None
