"""What waits for a circuit that was changed by hand: it is found page by page, and woken."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from durabletask.internal.orchestrator_service_pb2 import OrchestrationState

from durable_retry.base.documents import json_object
from durable_retry.circuit.entity import calling_page, circuits_waited_for, wake
from durable_retry.hub.task_hub import ID_PREFIX, TaskHub

PAGES_PER_STEP: Final = 5
"""Pages of 200 operations: a step takes seconds, and one that fails repeats little."""


@dataclass(frozen=True, slots=True)
class WaitingPage:
    """One page of running instances."""

    waiting: tuple[str, ...]  # ids of those that wait for the circuit in question
    following: str | None  # where the next page begins; None after the last one


async def waiting_page(
    hub: TaskHub,
    dependency: str,
    since_before: datetime,
    position: str | None,
    limit_key: str | None = None,
) -> WaitingPage:
    """Read one page of running instances and select those that wait for a circuit.

    Operations come first, then other orchestrations that call dependencies and show which hold them. A wait
    that began at `since_before` or later is left out. With a limit key, operations with another one are left
    out, too; without one none is, since a manual hold counts for all keys.
    """
    instances, following = await calling_page(hub, position)
    waiting = (
        instance.instanceId
        for instance in instances
        if _instance_waits(instance, dependency, since_before, limit_key)
    )
    return WaitingPage(tuple(waiting), following)


async def wake_some(
    hub: TaskHub,
    dependency: str,
    changed_at: datetime,
    position: str | None,
    limit_key: str | None = None,
) -> tuple[int, str | None]:
    """Wake operations on the next pages that wait for a circuit; waking one twice is harmless.

    Args:
        changed_at: From when on every worker sees its change.
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


def _instance_waits(
    instance: OrchestrationState, dependency: str, since_before: datetime, limit_key: str | None
) -> bool:
    # Other orchestrations do not show limit keys: one that is woken in vain waits again.
    if limit_key is not None and instance.instanceId.startswith(ID_PREFIX):
        status = json_object(instance.customStatus.value) or {}
        if status.get("limit_key") != limit_key:
            return False
    return dependency in circuits_waited_for(instance, since_before)
