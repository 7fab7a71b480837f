"""The route that answers a request: of those at its path the one with its method, a literal first.

As in the host, letters of either case are the same in a literal, and a slash at the end means nothing.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

import azure.functions as func

from durable_retry.binding import TaskHub
from durable_retry.http.answers import problem
from durable_retry.http.routes import InPath, Route
from durable_retry.settings.configuration import api_path


def responder(
    routes: Iterable[Route],
) -> Callable[[func.HttpRequest, TaskHub], Awaitable[func.HttpResponse]]:
    """Return the function that answers requests by these routes, with 404 or 405 where none fits."""
    ranked = sorted(routes, key=lambda route: [part.startswith("{") for part in _parts_of(route.path)])
    depth = len(_parts_of(api_path()))

    async def respond(req: func.HttpRequest, hub: TaskHub) -> func.HttpResponse:
        # Not the host's own parameters: it leaves "%2F" as it is, and an order key may have a slash.
        parts = _parts_of(urlsplit(req.url).path)[depth:]
        at_path = [
            (route, in_path) for route in ranked if (in_path := values_in_path(route.path, parts)) is not None
        ]
        for route, in_path in at_path:
            if route.method == req.method:
                return await route.respond(req, hub, in_path)
        return _refusal(sorted({route.method for route, _ in at_path}))

    return respond


def values_in_path(path: str, parts: Sequence[str]) -> InPath | None:
    """Return the parameters that a request's path gives to a route's; None where they do not fit.

    Args:
        path: Of the route, such as `circuits/{dependency}/open`; `{*rest}` at the end takes slashes, too.
        parts: Of the request's path, not decoded.
    """
    values: dict[str, str] = {}
    mine = _parts_of(path)
    for index, name in enumerate(mine):
        if index == len(parts):
            return None
        if name.startswith("{*"):
            return {**values, name[2:-1]: unquote("/".join(parts[index:]))}
        if name.startswith("{"):
            values[name[1:-1]] = unquote(parts[index])
        elif name != unquote(parts[index]).lower():
            return None
    return values if len(parts) == len(mine) else None


def _parts_of(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _refusal(methods: Sequence[str]) -> func.HttpResponse:
    if not methods:
        return problem(HTTPStatus.NOT_FOUND, "There is nothing at this path; see openapi.json for the paths.")
    allowed = ", ".join(methods)
    detail = f"This path takes {allowed}."
    return problem(HTTPStatus.METHOD_NOT_ALLOWED, detail, headers={"Allow": allowed})
