from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from durabletask.client import OrchestrationStatus

from durable_retry.base.names import Category, OperationState
from durable_retry.hub.instances import Instance
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.completion import Success
from durable_retry.rules.operations.keys import Life, apart_ms
from durable_retry.rules.operations.operation import OperationInput, run_number
from durable_retry.rules.operations.status import OperationStatus
from durable_retry.rules.retry.history import AttemptOutcome, History, PastAttempt
from durable_retry.rules.retry.policy import RetryPolicy, Timeouts

NOON: Final = datetime(2026, 11, 21, 12, tzinfo=UTC)
PAYMENTS: Final = Dependency(name="payments", base_url="https://payments.example.com/v1")

type Activities = Callable[[str, dict[str, Any]], Any]
"""What an activity returns for its name and input; an exception that is returned fails the activity."""


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def an_operation(*, deadline_in: float | None = 3600, **changes: Any) -> OperationInput:
    """Return an operation accepted at noon, with five attempts and fixed waits of 10 s.

    Args:
        deadline_in: Seconds from noon to its deadline; None means no deadline, for hubs on the real clock.
        changes: Fields with other values.
    """
    base = OperationInput(
        operation_id="op-test",
        key="key-1",
        run=run_number(NOON),
        source="http",
        dependency="payments",
        fingerprint="f1",
        policy=RetryPolicy(strategy="fixed", initial_seconds=10.0, jitter="none"),
        timeouts=Timeouts(),
        created_at=NOON,
        deadline_at=None if deadline_in is None else after(deadline_in),
        request={"method": "POST", "path": "/charges", "query": {}, "headers": {}, "json": {"amount": 5}},
    )
    return replace(base, **changes)


def instance_of(operation: OperationInput, ended_for: timedelta | None) -> Instance:
    """The instance of an operation of ten days ago that succeeded so long ago, None for one that runs."""
    status = OperationStatus(
        operation=operation, state=OperationState.SUCCEEDED, history=History(), updated_at=NOON
    )
    return Instance(
        operation.operation_id,
        OrchestrationStatus.RUNNING if ended_for is None else OrchestrationStatus.COMPLETED,
        NOON - timedelta(days=10),
        NOON - (ended_for or timedelta()),
        {"operation": operation.to_json()},
        None,
        None if ended_for is None else status.to_json(),
    )


def a_life(owner: str = "op-test", accepted_in: float = 0.0) -> Life:
    """Return a run that was accepted so many seconds after noon, of a key that answers for a day."""
    return Life(owner=owner, run=run_number(after(accepted_in)), apart_ms=apart_ms(86_400))


def a_success(writes: Iterable[Any] = (), events: Iterable[Any] = (), **changes: Any) -> Success:
    """Return a success with a handler's writes and events."""
    base = Success(
        operation_id="op-test", life=a_life(), result={"value": 1}, writes=tuple(writes), events=tuple(events)
    )
    return replace(base, **changes)


def an_outcome(category: Category | None = Category.TRANSIENT, **changes: Any) -> AttemptOutcome:
    """Return the outcome of attempt 1, made at noon."""
    base = AttemptOutcome(number=1, started_at=NOON, duration_ms=12.5, category=category, status_code=503)
    return replace(base, **changes)


def outcome(number: int, **more: Any) -> dict[str, Any]:
    """Return the JSON form of an attempt's outcome."""
    return AttemptOutcome(number=number, started_at=NOON, duration_ms=1.0, **more).to_json()


def failing(times: int, category: Category = Category.TRANSIENT, status_code: int = 503) -> Activities:
    """Return activities whose first `times` attempts fail and whose next one succeeds."""

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name != "attempt":
            others = {
                "dead_letter": "dl-1",
                "commit": {"run_id": "op-test.1", "rejected": None},
                "outbox_pending": {"place": {}, "deliveries": []},
            }
            return {**others, "pass_queue": None}[name]
        number = given["attempt"]
        if number > times:
            result = {"status_code": 200, "headers": {}, "json": {"id": "ch_1"}}
            return outcome(number, status_code=200, result=result)
        return outcome(number, category=category, status_code=status_code, error="no")

    return answer


def first(name: str, answers: Iterable[Any], then: Activities) -> Activities:
    """Return activities of which one gives these answers first."""
    left, no_more = iter(answers), object()

    def answer(asked: str, given: dict[str, Any]) -> Any:
        answered = next(left, no_more) if asked == name else no_more
        return then(asked, given) if answered is no_more else answered

    return answer


def a_record(number: int = 1, **changes: Any) -> PastAttempt:
    """Return the record of a failed attempt, made at noon."""
    base = PastAttempt(
        number=number, started_at=NOON, duration_ms=12.5, category=Category.TRANSIENT, status_code=503
    )
    return replace(base, **changes)


def a_history(attempts: int) -> History:
    """Return a history of so many failed attempts."""
    history = History()
    for number in range(1, attempts + 1):
        history = history.with_attempt(a_record(number))
    return history


def an_entry(operation_id: str, *, error: str | None = "no such amount 5", **changes: Any) -> dict[str, Any]:
    """Return the dead letter entry of an operation that one attempt ended.

    `error` is the attempt's, None for success. `changes` are fields of the entry or of the operation.
    """
    entry = {"category": "malformed", "reason": "RejectedByDependency", "detail": "status 422"}
    entry |= {name: changes.pop(name) for name in entry.keys() & changes.keys()}
    operation = an_operation(**({"operation_id": operation_id, "key": f"key-{operation_id}"} | changes))
    attempt = PastAttempt(
        number=1,
        started_at=NOON,
        duration_ms=4.2,
        category=None if error is None else Category(entry["category"]),
        status_code=200 if error is None else 422,
        error=error,
    )
    return {**entry, "operation": operation.to_json(), "attempts": [attempt.to_json()]}
