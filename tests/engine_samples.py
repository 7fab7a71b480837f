"""Small operations and outcomes that tests of the rules start from."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from engine.dependency import Dependency
from engine.operation import AttemptOutcome, AttemptRecord, History, OperationInput
from engine.policy import RetryPolicy, Timeouts
from engine.vocabulary import Category

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
PAYMENTS = Dependency(name="payments", base_url="https://payments.example.com/v1")


def after(seconds: float) -> datetime:
    """Give the instant so long after noon."""
    return NOON + timedelta(seconds=seconds)


def an_operation(*, deadline_in: float | None = 3600, **changes: Any) -> OperationInput:
    """Give an operation accepted at noon; policy keys of `RetryPolicy` go in through `policy`."""
    base = OperationInput(
        operation_id="op-sample",
        key="evt-1",
        source="http",
        dependency="payments",
        fingerprint="f" * 64,
        policy=RetryPolicy(jitter="none"),
        timeouts=Timeouts(),
        created_at=NOON,
        deadline_at=None if deadline_in is None else after(deadline_in),
        request={"method": "POST", "path": "/charges", "query": {}, "headers": {}, "json": {"amount": 5}},
    )
    return replace(base, **changes)


def an_outcome(category: Category | None = Category.TRANSIENT, **changes: Any) -> AttemptOutcome:
    """Give the outcome of attempt 1, made at noon."""
    base = AttemptOutcome(number=1, started_at=NOON, duration_ms=12.5, category=category, status_code=503)
    return replace(base, **changes)


def a_record(number: int = 1, **changes: Any) -> AttemptRecord:
    """Give the record of a failed attempt, made at noon."""
    base = AttemptRecord(
        number=number, started_at=NOON, duration_ms=12.5, category=Category.TRANSIENT, status_code=503
    )
    return replace(base, **changes)


def a_history(attempts: int) -> History:
    """Give a history of so many failed attempts."""
    history = History()
    for number in range(1, attempts + 1):
        history = history.with_attempt(a_record(number))
    return history
