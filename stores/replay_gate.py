"""Whether a dependency's circuit lets replays start: asked before each batch, for each dependency in it.

A replay that meets an open circuit would only wait there, one orchestration for each dead letter. So a bulk
replay waits itself. Probing is left to operations: half open, a replay is as good as any other operation.
"""

from datetime import datetime, timedelta
from typing import Final

from engine.circuit import CircuitState, snapshot_of
from stores import clock
from stores.circuit_entity import CircuitEntity
from stores.configuration import find_dependency
from stores.task_hub import TaskHubUnavailableError

RECHECK: Final = timedelta(seconds=15)
"""When to look again at a circuit that does not know when it will close."""

_SHORTEST: Final = timedelta(seconds=1)


async def held_until(hub: str, dependency_name: str) -> datetime | None:
    """Return when to ask again about a dependency whose circuit is open or paused; None when it is not.

    A circuit that cannot be read holds nothing up: the operation asks it again before its first attempt.

    Args:
        hub: Configuration of the durable client.
        dependency_name: The dependency; one that is not configured holds nothing up either.
    """
    dependency = find_dependency(dependency_name)
    if dependency is None or not dependency.circuit.enabled:
        return None
    try:
        breaker = await CircuitEntity(hub, dependency_name).read()
    except (TaskHubUnavailableError, ValueError):
        return None
    now = clock.now()
    seen = snapshot_of(breaker, now, settings=dependency.circuit, budget_settings=dependency.retry_budget)
    if seen.state in {CircuitState.OPEN, CircuitState.FORCED_OPEN}:
        return max(seen.retry_at or now + RECHECK, now + _SHORTEST)
    if seen.throttled_until is not None:
        return max(seen.throttled_until, now + _SHORTEST)
    return None
