"""What health, a diagnosis and a list say of what stands still."""

from functools import partial

from durable_retry.base.answers import Answer
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.features.standstill.settings import stuck_after_seconds
from durable_retry.features.standstill.store import Stuck
from durable_retry.features.standstill.stuck import stuck_instances
from durable_retry.hub.task_hub import TaskHub
from durable_retry.runtime import clock
from durable_retry.upkeep.health import HealthPart, seen_lately


class StuckInstances(Answer):
    """The orchestrations that no nudge moves; some, where there are many."""

    items: Stuck


async def find_stuck(hub: TaskHub) -> StuckInstances:
    """Return those that stand still."""
    return StuckInstances(items=await stuck_instances(hub, clock.now()))


async def stuck_part(hub: TaskHub) -> HealthPart:
    """Return whether nothing stands still for too long."""
    patience, now = stuck_after_seconds(), clock.now()
    stuck: Stuck = ()
    if patience > 0:
        stuck = await seen_lately(hub, partial(stuck_instances, hub, now), stuck)
    seconds = max(((now - instance.since).total_seconds() for instance in stuck), default=0.0)
    if seconds <= patience:
        return HealthPart(healthy=True)
    detail = f"{len(stuck)} that stand still, for {seconds:.0f} s; `retryctl doctor --stuck` names them"
    return HealthPart(healthy=False, detail=detail)


async def why_stuck(hub: TaskHub) -> str:
    """Return since when instances stand still, and their ids; "" when none does."""
    stuck = await stuck_instances(hub, clock.now())
    if not stuck:
        return ""
    return f"since {to_rfc3339(stuck[0].since)}: {', '.join(instance.instance_id for instance in stuck)}"
