"""The circuits of the dependencies as people see them, and manual control of them."""

import asyncio
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final

from pydantic import Field

from durable_retry.base.errors import NoSuchDependencyError, UnchangeableCircuitError
from durable_retry.base.validation import (
    InvalidInputError,
    Label,
    Problem,
    Strict,
    checked,
    with_example,
)
from durable_retry.circuit.entity import (
    CircuitEntity,
    key_circuits_after,
    reset_limiter,
    start_release,
    waiting_page,
    wake,
)
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.breaker import Breaker, ManualControl, advanced
from durable_retry.rules.circuit.messages import CircuitChange, KeyFigures, view_of, why_of_keys
from durable_retry.rules.circuit.transitions import ManualAction
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.limits.document import LimitedCircuit, ListedCircuit, limits_view
from durable_retry.rules.limits.limiter import Limiter
from durable_retry.rules.limits.settings import limits_summary
from durable_retry.runtime import clock
from durable_retry.settings.configuration import dependencies, find_dependency
from durable_retry.storage import rounds

PAGES_PER_STEP: Final = 5
"""Pages of 200 operations: a step takes seconds, and one that fails repeats little."""

_YEAR_SECONDS: Final = 31_536_000.0

# After these, operations that wait for the circuit are woken.
_RELEASING: Final = frozenset({ManualControl.CLOSE, ManualControl.DISABLE, ManualControl.RESET})


class ManualControlBody(Strict):
    """The body of a manual change.

    Attributes:
        reason: Why, for the audit; 200 characters of it are kept.
        for_seconds: How long opening or disabling lasts; None means until the next manual change. Closing and
            resetting have no length.
        stops_deadline: Whether the deadlines of operations that wait for it stop while it is held open.
            Without meaning for everything else.
        epoch: The epoch of the circuit as the caller saw it; in any other nothing is changed. None changes it
            anyway.
        limit_key: Whose circuit it is for, where `circuit.by` is `limit_key`. None means the dependency's,
            which holds all keys while it is held open.
    """

    model_config = with_example(reason="The supplier has an outage.", for_seconds=600.0)

    reason: Annotated[
        str, Field(max_length=2_000), checked(lambda text: None if text.strip() else "must say why")
    ]
    for_seconds: Annotated[float, Field(gt=0, le=_YEAR_SECONDS)] | None = None
    stops_deadline: bool = False
    epoch: Annotated[int, Field(ge=1)] | None = None
    limit_key: Label | None = None


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
    dependency = _required_dependency(name, limit_key)
    circuit, now = CircuitEntity(hub, dependency.name, limit_key), clock.now()
    breaker, unreadable = await circuit.readable()
    limiter = await circuit.limiter() if dependency.limits.is_on else Limiter()
    view = view_of(dependency.name, breaker, now, dependency.circuit, unreadable)
    limits = limits_view(dependency.limits, limiter, clock.now())
    of_keys = await _of_keys(hub, dependency, breaker, view.why)
    return LimitedCircuit(**dict(view) | of_keys | {"limit_key": limit_key}, limits=limits)


async def control_circuit(
    hub: TaskHub, name: str, control: ManualControl, body: ManualControlBody, by: str
) -> CircuitChange:
    """Change a circuit by hand.

    Raises:
        UnchangeableCircuitError: It is switched off, or no longer in the epoch that the change is for.
    """
    dependency = _required_dependency(name, body.limit_key)
    if not dependency.circuit.enabled:
        setting = "circuit.enabled = false in dependencies.toml"
        raise UnchangeableCircuitError(f"the circuit of {dependency.name} is switched off by {setting}")
    circuit = CircuitEntity(hub, dependency.name, body.limit_key)
    await _check_epoch(circuit, body.epoch)
    action = ManualAction(
        control,
        clock.now(),
        by,
        body.reason.strip(),
        body.for_seconds,
        body.epoch,
        stops_deadline=body.stops_deadline or None,
        limit_key=body.limit_key,
        by_key=(dependency.circuit.is_by_key and body.limit_key is None) or None,
    )
    await circuit.control(action)
    if control is ManualControl.RESET and dependency.limits.is_on and body.limit_key is None:
        await reset_limiter(hub, dependency.name)
    if control in _RELEASING:
        await start_release(hub, dependency.name, action)
    return CircuitChange(
        dependency=dependency.name,
        action=control,
        reason=body.reason,
        for_seconds=body.for_seconds,
        stops_deadline=body.stops_deadline,
        limit_key=body.limit_key,
    )


async def _check_epoch(circuit: CircuitEntity, epoch: int | None) -> None:
    # The circuit itself checks again when the change arrives.
    if epoch is None:
        return
    current = advanced((await circuit.readable())[0], clock.now()).epoch
    if current != epoch:
        what = f"the circuit of {circuit.dependency} is in epoch {current} by now, not {epoch}"
        raise UnchangeableCircuitError(what)


def _required_dependency(name: str, limit_key: str | None = None) -> Dependency:
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


async def wake_some(
    hub: TaskHub,
    dependency: str,
    changed_at: datetime,
    position: str | None,
    limit_key: str | None = None,
) -> tuple[int, str | None]:
    """Wake operations on the next pages that wait for a circuit; waking one twice is harmless.

    Args:
        changed_at: Since when every worker sees its change.
        position: Where the step before ended; None for the first.
        limit_key: Only operations that have it; None for all.

    Returns:
        How many were woken, and where the next step begins; None after the last.
    """
    woken = 0
    for _ in range(PAGES_PER_STEP):
        page = await waiting_page(hub, dependency, changed_at, position, limit_key)
        await wake(hub, dependency, page.waiting, changed_at)
        woken, position = woken + len(page.waiting), page.following
        if position is None:
            break
    return woken, position
