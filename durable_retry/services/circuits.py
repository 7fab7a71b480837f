"""The circuits of the dependencies as people see them, and manual control of them."""

import asyncio
from datetime import datetime
from typing import Annotated, Final

from pydantic import Field

from durable_retry import clock
from durable_retry.engine.base.errors import NoSuchDependencyError, UnchangeableCircuitError
from durable_retry.engine.base.validation import Strict, checked, with_example
from durable_retry.engine.circuit.breaker import ManualControl
from durable_retry.engine.circuit.messages import CircuitChange, view_of
from durable_retry.engine.circuit.transitions import ManualAction
from durable_retry.engine.config.dependency import Dependency
from durable_retry.engine.limits.document import LimitedCircuit, ListedCircuit, limits_view
from durable_retry.engine.limits.limiter import Limiter
from durable_retry.engine.limits.settings import limits_summary, shared_limits_at
from durable_retry.settings.configuration import dependencies, find_dependency
from durable_retry.stores.circuit.entity import CircuitEntity, start_release, waiting_page, wake
from durable_retry.stores.task_hub import TaskHub

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
    """

    model_config = with_example(reason="The supplier has an outage.", for_seconds=600.0)

    reason: Annotated[
        str, Field(max_length=2_000), checked(lambda text: None if text.strip() else "must say why")
    ]
    for_seconds: Annotated[float, Field(gt=0, le=_YEAR_SECONDS)] | None = None
    stops_deadline: bool = False
    epoch: Annotated[int, Field(ge=1)] | None = None


async def every_circuit(hub: TaskHub) -> list[ListedCircuit]:
    """Return every circuit, by the name of its dependency."""
    all_dependencies = [dependency for _, dependency in sorted(dependencies().dependencies.items())]
    return await asyncio.gather(*(_listed_circuit(hub, configured) for configured in all_dependencies))


async def find_circuit(hub: TaskHub, name: str) -> LimitedCircuit:
    """Return the circuit of a dependency, and its limits."""
    dependency = _required_dependency(name)
    circuit, now = CircuitEntity(hub, dependency.name), clock.now()
    breaker, unreadable = await circuit.readable()
    needed = shared_limits_at(now, dependency.limits, breaker)
    limiter = await circuit.limiter() if needed.settings.is_on else Limiter()
    view = view_of(dependency.name, breaker, now, dependency.circuit, unreadable)
    limits = limits_view(dependency.limits, needed, limiter, clock.now())
    return LimitedCircuit(**dict(view), limits=limits)


async def control_circuit(
    hub: TaskHub, name: str, control: ManualControl, body: ManualControlBody, by: str
) -> CircuitChange:
    """Change a circuit by hand.

    Raises:
        UnchangeableCircuitError: It is switched off, or no longer in the epoch that the change is for.
    """
    dependency = _required_dependency(name)
    if not dependency.circuit.enabled:
        setting = "circuit.enabled = false in dependencies.toml"
        raise UnchangeableCircuitError(f"the circuit of {dependency.name} is switched off by {setting}")
    await _check_epoch(hub, dependency, body.epoch)
    action = ManualAction(
        control,
        clock.now(),
        by,
        body.reason.strip(),
        body.for_seconds,
        body.epoch,
        stops_deadline=body.stops_deadline or None,
    )
    await CircuitEntity(hub, dependency.name).control(action)
    if control in _RELEASING:
        await start_release(hub, dependency.name, action)
    return CircuitChange(
        dependency=dependency.name,
        action=control,
        reason=body.reason,
        for_seconds=body.for_seconds,
        stops_deadline=body.stops_deadline,
    )


async def _check_epoch(hub: TaskHub, dependency: Dependency, epoch: int | None) -> None:
    # The circuit itself checks again when the change arrives.
    if epoch is None:
        return
    current = (await _listed_circuit(hub, dependency)).epoch
    if current != epoch:
        what = f"the circuit of {dependency.name} is in epoch {current} by now, not {epoch}"
        raise UnchangeableCircuitError(what)


def _required_dependency(name: str) -> Dependency:
    dependency = find_dependency(name)
    if dependency is None:
        raise NoSuchDependencyError(name)
    return dependency


async def _listed_circuit(hub: TaskHub, dependency: Dependency) -> ListedCircuit:
    breaker, unreadable = await CircuitEntity(hub, dependency.name).readable()
    now = clock.now()
    limits = limits_summary(dependency.limits, shared_limits_at(now, dependency.limits, breaker))
    view = view_of(dependency.name, breaker, now, dependency.circuit, unreadable)
    return ListedCircuit(**dict(view), limits=limits)


async def wake_some(
    hub: TaskHub, dependency: str, changed_at: datetime, position: str | None
) -> tuple[int, str | None]:
    """Wake operations on the next pages that wait for a circuit; waking one twice is harmless.

    Args:
        changed_at: Since when every worker sees its change.
        position: Where the step before ended; None for the first.

    Returns:
        How many were woken, and where the next step begins; None after the last.
    """
    woken = 0
    for _ in range(PAGES_PER_STEP):
        page = await waiting_page(hub, dependency, changed_at, position)
        await wake(hub, dependency, page.waiting, changed_at)
        woken, position = woken + len(page.waiting), page.following
        if position is None:
            break
    return woken, position
