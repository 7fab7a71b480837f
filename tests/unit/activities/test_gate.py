from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from activities.gate import pause_asked_by, verdict_on
from engine.circuit import Verdict
from engine.operation import AttemptOutcome
from engine.policy import RetryPolicy
from engine.retry_after import RetryHint
from engine.vocabulary import Category
from tests.operation_stage import START

POLICY = RetryPolicy(max_retry_after_seconds=300.0)


def outcome(category: Category | None, **more: Any) -> AttemptOutcome:
    return AttemptOutcome(number=1, started_at=START, duration_ms=1.0, category=category, **more)


@pytest.mark.parametrize(
    ("category", "status_code", "verdict"),
    [
        (None, 200, Verdict.SUCCESS),
        (Category.MALFORMED, 400, Verdict.SUCCESS),
        (Category.TRANSIENT, 503, Verdict.FAILURE),
        (Category.THROTTLED, 429, Verdict.SILENT),
        (Category.DEADLINE_EXCEEDED, None, Verdict.SILENT),
    ],
)
def test_an_attempt_is_judged_by_its_category(
    category: Category | None, status_code: int | None, verdict: Verdict
) -> None:
    assert verdict_on(outcome(category, status_code=status_code)) is verdict


def test_an_attempt_that_never_left_says_nothing_of_the_dependency() -> None:
    assert verdict_on(outcome(Category.TRANSIENT, counted=False)) is Verdict.SILENT


def test_a_throttled_answer_asks_for_a_pause_within_what_the_policy_allows() -> None:
    asked = outcome(Category.THROTTLED, retry_hint=RetryHint(20.0))
    assert pause_asked_by(asked, POLICY, START) == START + timedelta(seconds=20)
    long = outcome(Category.THROTTLED, retry_hint=RetryHint(9_000.0))
    assert pause_asked_by(long, POLICY, START) == START + timedelta(seconds=300)
    assert pause_asked_by(long, replace(POLICY, respect_retry_after=False), START) is None


@pytest.mark.parametrize(
    ("category", "hint"),
    [
        (Category.TRANSIENT, RetryHint(20.0)),
        (Category.THROTTLED, None),
        (Category.THROTTLED, RetryHint(0.0, source="", notes=("not readable",))),
    ],
)
def test_nothing_else_pauses_the_dependency(category: Category, hint: RetryHint | None) -> None:
    assert pause_asked_by(outcome(category, retry_hint=hint), POLICY, START) is None
