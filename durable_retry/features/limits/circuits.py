"""What documents of circuits have of the limits of their dependencies."""

from typing import Any, Final

from durable_retry.base.answers import Page
from durable_retry.circuit.circuits import CircuitDocuments
from durable_retry.features.limits.rules.document import LimitedCircuit, ListedLimitedCircuit, limits_view
from durable_retry.features.limits.rules.settings import limits_of, limits_summary
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.features.limits.store import read_limiter
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.config.dependency import Dependency
from durable_retry.runtime import clock


def _in_list(dependency: Dependency) -> dict[str, Any]:
    return {"limits": limits_summary(limits_of(dependency))}


async def _by_itself(hub: TaskHub, dependency: Dependency) -> dict[str, Any]:
    limits = limits_of(dependency)
    limiter = await read_limiter(hub, dependency.name) if limits.is_on else Limiter()
    return {"limits": limits_view(limits, limiter, clock.now())}


DOCUMENTS: Final = CircuitDocuments(
    Page[ListedLimitedCircuit], ListedLimitedCircuit, LimitedCircuit, _in_list, _by_itself
)
"""The limits are in both, and their use where a circuit is shown by itself."""
