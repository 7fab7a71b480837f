"""HTTP: histories of orchestrations, which `retryctl check-replay` replays against other code."""

from typing import Final

from durable_retry.base.answers import Page
from durable_retry.features.histories.list import InstanceHistory, histories
from durable_retry.http.parameters import CURSOR, flag
from durable_retry.http.routes import Query, Routes
from durable_retry.hub.binding import TaskHub

routes = Routes("the app")


COMPLETED: Final = flag("completed", "`true`: also of what has completed.")


@routes.get(
    "histories",
    for_operators=True,
    parameters=(COMPLETED, CURSOR),
)
async def list_histories(query: Query, hub: TaskHub) -> Page[InstanceHistory]:
    """List the histories of the orchestrations that are under way, with all that they were given and gave."""
    completed = bool(query[COMPLETED])
    return await histories(hub, query[CURSOR], completed=completed)
