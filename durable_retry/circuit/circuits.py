"""The circuits of the dependencies as people see them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from durable_retry.base.answers import Page
from durable_retry.base.errors import NoSuchDependencyError
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.circuit.entity import CircuitEntity
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import features
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.messages import CircuitDocument, KeyFigures, view_of, why_of_keys
from durable_retry.rules.config.dependency import Dependency
from durable_retry.runtime import clock
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import dependencies, find_dependency


async def _nothing(*_: Any) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class CircuitDocuments:
    """How circuits are shown.

    Attributes:
        page: A page of a list of circuits.
        listed: A circuit in such a list.
        whole: A circuit by itself.
        in_list: Returns the members of a listed document beside its circuit; takes the dependency.
        by_itself: The same for a document by itself; takes the task hub, too.
    """

    page: type[Page[Any]] = Page[CircuitDocument]
    listed: type[CircuitDocument] = CircuitDocument
    whole: type[CircuitDocument] = CircuitDocument
    in_list: Callable[[Dependency], dict[str, Any]] = lambda _: {}
    by_itself: Callable[[TaskHub, Dependency], Awaitable[dict[str, Any]]] = _nothing


@cache
def documents() -> CircuitDocuments:
    """Return how circuits are shown, by a feature or without one."""
    added = (imported(feature.circuits) for feature in features() if feature.circuits)
    return next(added, CircuitDocuments())


async def every_circuit(hub: TaskHub) -> list[CircuitDocument]:
    """Return every circuit, by the name of its dependency."""
    all_dependencies = [dependency for _, dependency in sorted(dependencies().dependencies.items())]
    return await asyncio.gather(*(_listed_circuit(hub, configured) for configured in all_dependencies))


async def refusing_dependencies(hub: TaskHub) -> tuple[str, ...]:
    """Return the dependencies that refuse the app's own credential, which keeps their circuits open."""
    configured = sorted(dependencies().dependencies.items())
    names = [name for name, dependency in configured if dependency.circuit.opens_without_credential]
    read = await asyncio.gather(*(CircuitEntity(hub, name).readable() for name in names))
    return tuple(name for name, (breaker, _) in zip(names, read, strict=True) if breaker.unauthorized_by)


async def find_circuit(hub: TaskHub, name: str, limit_key: str | None = None) -> CircuitDocument:
    """Return the circuit of a dependency, or of one of its limit keys."""
    dependency = required_dependency(name, limit_key)
    circuit, now = CircuitEntity(hub, dependency.name, limit_key), clock.now()
    breaker, unreadable = await circuit.readable()
    more = await documents().by_itself(hub, dependency)
    view = view_of(dependency.name, breaker, now, dependency.circuit, unreadable)
    key_members = await _key_members(hub, dependency, breaker, view.why)
    return documents().whole(**dict(view) | key_members | {"limit_key": limit_key} | more)


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


async def _listed_circuit(hub: TaskHub, dependency: Dependency) -> CircuitDocument:
    breaker, unreadable = await CircuitEntity(hub, dependency.name).readable()
    now = clock.now()
    more = documents().in_list(dependency)
    view = view_of(dependency.name, breaker, now, dependency.circuit, unreadable)
    return documents().listed(**dict(view) | await _key_members(hub, dependency, breaker, view.why) | more)


async def _key_members(
    hub: TaskHub, dependency: Dependency, breaker: Breaker, own_why: str | None
) -> dict[str, Any]:
    """Return the members of a circuit's document about limit keys whose calls are held up."""
    now = clock.now()
    keys = tuple(
        KeyFigures.taken_from(view_of(dependency.name, held, now, dependency.circuit))
        for held in await held_keys(hub, dependency, breaker)
    )
    why = "; ".join(filter(None, (own_why, why_of_keys(keys))))
    return {"limit_keys": keys or None, "why": why or None}


async def held_keys(hub: TaskHub, dependency: Dependency, breaker: Breaker) -> list[Breaker]:
    """Return the circuits that hold calls up, for the limit keys that the dependency's own circuit lists."""
    limit_keys = (breaker.keys or ()) if dependency.circuit.is_by_key else ()
    circuits = [CircuitEntity(hub, dependency.name, limit_key) for limit_key in limit_keys]
    read = await asyncio.gather(*(circuit.readable() for circuit in circuits))
    now = clock.now()
    return [held for held, _ in read if held.limit_key is not None and not held.is_free(now)]
