"""From a validated request to the input of the orchestration: here policies are resolved."""

from dataclasses import replace
from datetime import datetime

from durable_retry.engine.base.trace_context import TraceContext
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.engine.config.dependency import Dependency
from durable_retry.engine.operations.fingerprint import fingerprint
from durable_retry.engine.operations.idempotency import operation_id_for
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.request import OperationRequest
from durable_retry.engine.retry.delay_constraints import deadline_of
from durable_retry.engine.retry.policy import RetryPolicy, Timeouts, overridden, override_problems


def operation_from(
    request: OperationRequest,
    dependency: Dependency,
    *,
    key: str,
    scope: str,
    source: str,
    now: datetime,
    replay_of: str | None = None,
    trace: TraceContext | None = None,
) -> OperationInput:
    """Resolve what an operation starts with.

    Args:
        request: Validated.
        dependency: The one that it names, or that its handler names.
        key: Idempotency key.
        scope: Sets keys apart, see `engine.operations.idempotency.operation_id_for`.
        source: `http`, `queue`, ...
        now: When it was accepted.
        replay_of: The dead letter that it replays; None for a first run.
        trace: Where in a trace the caller stands; None when nobody traces it.

    Raises:
        InvalidInputError: where the request asks for more than the dependency allows.
    """
    timeouts = _timeouts(request, dependency)
    policy = _policy(request, dependency, timeouts)
    call = None if request.request is None else request.request.to_json()
    return OperationInput(
        operation_id=operation_id_for(scope, key),
        key=key,
        source=source,
        dependency=dependency.name,
        fingerprint=request_fingerprint(request, dependency),
        policy=policy,
        timeouts=timeouts,
        created_at=now,
        deadline_at=deadline_of(now, timeouts.deadline_seconds),
        ttl_seconds=dependency.idempotency.ttl_seconds,
        handler=request.handler,
        request=call,
        input=request.input,
        correlation_id=request.correlation_id,
        on_success=tuple(event.to_json() for event in request.on_success),
        replay_of=replay_of,
        trace=trace,
    )


def request_fingerprint(request: OperationRequest, dependency: Dependency) -> str:
    """Return the hash of the target and of the request (or its chosen parts), or of the input."""
    if request.request is None:
        return fingerprint(f"handler {request.handler}", request.input)
    pointers = dependency.idempotency.fingerprint
    return fingerprint(f"dependency {dependency.name}", request.request.to_json(), pointers)


def _timeouts(request: OperationRequest, dependency: Dependency) -> Timeouts:
    if request.deadline_seconds is None:
        return dependency.timeouts
    return replace(dependency.timeouts, deadline_seconds=request.deadline_seconds)


def _policy(request: OperationRequest, dependency: Dependency, timeouts: Timeouts) -> RetryPolicy:
    written = {} if request.retry is None else request.retry.written()
    policy = overridden(dependency.retry, written)
    problems = override_problems(dependency.retry, policy, timeouts.deadline_seconds)
    if problems:
        raise InvalidInputError(_placed(problem, written) for problem in problems)
    return policy


def _placed(problem: Problem, written: dict[str, object]) -> Problem:
    """Point at what the caller wrote: without `retry` the deadline is what conflicts with the policy."""
    return problem if written else Problem("/deadline_seconds", problem.detail)
