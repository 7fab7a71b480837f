"""A collection of routes is one function of the host: it gets everything at and below one word of the path.

The host tries functions in the order of their names and has no rank for routes: `operations/{operation_id}`
would take what is for `operations/summary`. Here the app finds the route by itself (`dispatch.py`). And the
modules of a collection are imported with its first request, so that the app starts soon.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

import azure.functions as func

from durable_retry.hub.binding import TaskHub, bind_hub
from durable_retry.plugins import Collection
from durable_retry.runtime.deferred import REFERENCES, imported

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""Also those that no route has: the host's own answer to them has no body."""

_DISPATCH: Final = "durable_retry.http.dispatch:responder"


def add_collection(
    blueprint: Any, collection: Collection, routes_of: Callable[[Collection], Iterable[Any]]
) -> None:
    """Add the host's function of a collection.

    Args:
        blueprint: A `df.Blueprint`.
        routes_of: Gives the routes of a collection; called with the first request.
    """
    REFERENCES.update(collection.routes)

    @cache
    def respond() -> Any:
        return imported(_DISPATCH)(routes_of(collection))

    async def answer(req: func.HttpRequest, hub: TaskHub) -> func.HttpResponse:
        response: func.HttpResponse = await respond()(req, hub)
        return response

    answer.__name__ = collection.function
    # Set on each route: an app around the engine may have anonymous routes by default.
    level = func.AuthLevel.ANONYMOUS if collection.anonymous else func.AuthLevel.FUNCTION
    bound = bind_hub(blueprint)(answer)
    blueprint.route(route=collection.path, methods=METHODS, auth_level=level)(bound)
