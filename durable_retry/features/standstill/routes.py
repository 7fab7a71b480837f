"""HTTP: what stands still."""

from durable_retry.features.standstill.trouble import StuckInstances, find_stuck
from durable_retry.http.routes import Routes
from durable_retry.hub.binding import TaskHub

routes = Routes("the app")


@routes.get("diagnoses/stuck")
async def list_stuck(hub: TaskHub) -> StuckInstances:
    """List the orchestrations that stand still and that no nudge moves, the first that was due first."""
    return await find_stuck(hub)
