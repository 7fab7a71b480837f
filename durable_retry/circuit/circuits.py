"""The circuits of the dependencies as people see them."""

import asyncio
from datetime import datetime
from functools import partial
from typing import Any

from durable_retry.base.errors import NoSuchDependencyError
from durable_retry.base.validation import (
    InvalidInputError,
    Problem,
)
from durable_retry.circuit.entity import (
    CircuitEntity,
    key_circuits_after,
)
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.messages import KeyFigures, view_of, why_of_keys
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.limits.document import LimitedCircuit, ListedCircuit, limits_view
from durable_retry.rules.limits.limiter import Limiter
from durable_retry.rules.limits.settings import limits_summary
from durable_retry.runtime import clock
from durable_retry.settings.configuration import dependencies, find_dependency
from durable_retry.storage import rounds


async def every_circuit(hub: TaskHub) -> list[ListedCircuit]:
    """Return every circuit, by the name of its dependency."""
    all_dependencies = [dependency for _, dependency in sorted(dependencies().dependencies.items())]
    return await asyncio.gather(*(_listed_circuit(hub, configured) for configured in all_dependencies))


async def refusing_dependencies(hub: TaskHub) -> tuple[str, ...]:
    """Return the dependencies that refuse the app's own credential, which keeps their circuits open."""
    known = dependencies().dependencies
    asked = [name for name, each in sorted(known.items()) if each.circuit.opens_without_credential]
    read = await asyncio.gather(*(CircuitEntity(hub, name).readable() for name in asked))
    return tuple(name for name, (breaker, _) in zip(asked, read, strict=True) if breaker.unauthorized_by)


async def find_circuit(hub: TaskHub, name: str, limit_key: str | None = None) -> LimitedCircuit:
    """Return the circuit of a dependency, or of one of its limit keys, and its limits."""
    dependency = required_dependency(name, limit_key)
    circuit, now = CircuitEntity(hub, dependency.name, limit_key), clock.now()
    breaker, unreadable = await circuit.readable()
    limiter = await circuit.limiter() if dependency.limits.is_on else Limiter()
    view = view_of(dependency.name, breaker, now, dependency.circuit, unreadable)
    limits = limits_view(dependency.limits, limiter, clock.now())
    of_keys = await _of_keys(hub, dependency, breaker, view.why)
    return LimitedCircuit(**dict(view) | of_keys | {"limit_key": limit_key}, limits=limits)


def required_dependency(name: str, limit_key: str | None = None) -> Dependency:
    """Return the dependency of a circuit.

    Raises:
        NoSuchDependencyError: There is none of this name.
        InvalidInputError: It has no circuits of limit keys, and `limit_key` names one.
    """
    dependency = find_dependency(name)
    if dependency is None:
        raise NoSuchDependencyError(name)
    if limit_key is not None and not dependency.circuit.is_by_key:
        raise InvalidInputError([Problem("/limit_key", f"circuit.by of {name} is not limit_key")])
    return dependency


async def _listed_circuit(hub: TaskHub, dependency: Dependency) -> ListedCircuit:
    breaker, unreadable = await CircuitEntity(hub, dependency.name).readable()
    now = clock.now()
    limits = limits_summary(dependency.limits)
    view = view_of(dependency.name, breaker, now, dependency.circuit, unreadable)
    return ListedCircuit(**dict(view) | await _of_keys(hub, dependency, breaker, view.why), limits=limits)


async def _of_keys(
    hub: TaskHub, dependency: Dependency, breaker: Breaker, own_why: str | None
) -> dict[str, Any]:
    """Return what the document of a circuit says of limit keys whose calls a circuit or a pause holds up."""
    now = clock.now()
    keys = tuple(
        KeyFigures.taken_from(view_of(dependency.name, each, now, dependency.circuit))
        for each in await held_keys(hub, dependency, breaker)
    )
    why = "; ".join(filter(None, (own_why, why_of_keys(keys))))
    return {"limit_keys": keys or None, "why": why or None}


async def held_keys(hub: TaskHub, dependency: Dependency, breaker: Breaker) -> list[Breaker]:
    """Return the circuits of limit keys that hold calls up, of those that the dependency's own lists."""
    limit_keys = (breaker.keys or ()) if dependency.circuit.is_by_key else ()
    keys = [CircuitEntity(hub, dependency.name, limit_key) for limit_key in limit_keys]
    read = await asyncio.gather(*(circuit.readable() for circuit in keys))
    now = clock.now()
    return [each for each, _ in read if each.limit_key is not None and not each.is_free(now)]


async def forget_idle_circuits(hub: TaskHub, now: datetime, seconds: float) -> None:
    """Forget the circuits of limit keys that nobody uses, for so long, from where the last run stopped."""
    for name, dependency in dependencies().dependencies.items():
        if not dependency.circuit.is_by_key:
            continue
        read = partial(key_circuits_after, hub, name)
        async for page in rounds.pages_from_place(f"circuits-{name}", read, seconds):
            for breaker in page:
                if breaker.is_idle(now):
                    await CircuitEntity(hub, name, breaker.limit_key).forget()
