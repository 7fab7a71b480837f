"""Decides whether an operation leaves its dependency, and where it goes on."""

from datetime import datetime

from durable_retry.attempt.attempt import called_operation
from durable_retry.attempt.http_request import brings_credential
from durable_retry.circuit.cache import permit_of
from durable_retry.features.fallback.rules import Departure, LeaveCall, Route, fallback_of, route_of, terms_at
from durable_retry.features.fallback.stays import Stay
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.snapshot import Permitted, Refused
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.operation import AttemptCall, OperationInput
from durable_retry.runtime import clock
from durable_retry.settings.configuration import find_dependency, limits_of


async def leave_dependency(hub: TaskHub, asked: LeaveCall) -> Departure:
    """Let an operation leave its dependency for another one, if nothing was done there for it. Idempotent."""
    operation = await called_operation(hub, AttemptCall.from_json(asked.call))
    route, stay = route_of(operation), Stay.of(operation)
    was_left = await stay.was_left()
    if not (was_left or asked.is_late or await _is_held(hub, operation, route)):
        return Departure()
    departure = await _destination(hub, operation, route)
    if was_left:
        # Nothing was sent or will be sent in the stay that was left, so a new stay here is safe.
        return Departure(to=operation.dependency) if departure.to is None else departure
    if departure.to is None or await stay.leave():
        return departure
    return Departure(why=f"an earlier execution may have reached {operation.dependency}, so it stays there")


async def _is_held(hub: TaskHub, operation: OperationInput, route: Route) -> bool:
    """Whether the circuit of its dependency holds an operation; at a fallback a pause counts, too."""
    dependency = find_dependency(operation.dependency)
    if dependency is None:
        return False
    answer = await permit_of(hub, dependency, operation.operation_id, operation.limit_key)
    is_paused = isinstance(answer, Refused) and answer.throttled is True
    return not isinstance(answer, Permitted) and (route.of is not None or not is_paused)


async def _destination(hub: TaskHub, operation: OperationInput, route: Route) -> Departure:
    """Return the first dependency along the chain of fallbacks whose circuit is not open."""
    if route.of is not None:
        return Departure(to=route.of)
    first, why, until = find_dependency(operation.dependency), list[str](), list[datetime]()
    name, passed = route.to, {operation.dependency}
    while name and name not in passed:
        passed.add(name)
        dependency = find_dependency(name)
        if dependency is None:
            why.append(f"{name} is not configured here any more")
            break
        name = fallback_of(dependency)
        if (unfit := _misfit(operation, dependency)) is not None:
            why.append(unfit)
            continue
        answer = await permit_of(hub, dependency, operation.operation_id, operation.limit_key)
        if not isinstance(answer, Refused):
            terms = terms_at(operation, first, limits_of(dependency, operation.handler), clock.now())
            return Departure(to=dependency.name, terms=terms)
        why.append(f"{dependency.name} is not asked either: {answer.reason}")
        until.append(answer.until)
    return Departure(why="; ".join(why), until=min(until, default=None))


def _misfit(operation: OperationInput, dependency: Dependency) -> str | None:
    if operation.request is None:
        return None
    if not dependency.base_url:
        return f"{dependency.name} has no base_url"
    if brings_credential(operation, dependency):
        return f"{dependency.name} is not asked: the request has a credential of its caller"
    return None
