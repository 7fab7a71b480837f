"""The route that answers a request: of those at its path the one with its method, a literal first.

As in the host, letters of either case are the same in a literal, and a slash at the end means nothing.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

import azure.functions as func

from durable_retry.http.answers import problem
from durable_retry.http.routes import Route
from durable_retry.hub.binding import TaskHub
from durable_retry.settings.configuration import api_path

PROTECTION: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Headers of every answer that does not set them: no cache keeps it, and no browser takes it for a page."""


def responder(
    routes: Iterable[Route],
) -> Callable[[func.HttpRequest, TaskHub], Awaitable[func.HttpResponse]]:
    """Return the function that answers requests by these routes, with 404 or 405 where none fits."""
    ranked = sorted(routes, key=lambda route: [part.startswith("{") for part in route.path.split("/")])
    patterns = [(pattern_of(route.path), route) for route in ranked]
    above = api_path().count("/") + 1

    async def respond(req: func.HttpRequest, hub: TaskHub) -> func.HttpResponse:
        answer = await find_answer(req, hub)
        for name, value in PROTECTION.items():
            answer.headers.setdefault(name, value)
        return answer

    async def find_answer(req: func.HttpRequest, hub: TaskHub) -> func.HttpResponse:
        # Not the host's own parameters: it leaves "%2F" as it is, and an order key may have a slash.
        path = req.url.partition("?")[0].split("://", 1)[-1].rstrip("/").split("/", above)[-1]
        method = "GET" if req.method == "HEAD" else req.method  # the host leaves out the body
        for pattern, route in patterns:
            if route.method == method and (match := pattern.fullmatch(path)) is not None:
                in_path = {name: unquote(value) for name, value in match.groupdict().items()}
                return await route.respond(req, hub, in_path)
        return _refusal(sorted({route.method for pattern, route in patterns if pattern.fullmatch(path)}))

    return respond


def pattern_of(path: str) -> re.Pattern[str]:
    """Return what a route's path matches: `{name}` a part, `{*name}` the rest, with a group of that name."""
    pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(path))
    return re.compile(re.sub(r"\\\{\\\*(\w+)\\\}", r"(?P<\1>.+)", pattern), re.IGNORECASE)


def _refusal(methods: Sequence[str]) -> func.HttpResponse:
    if not methods:
        return problem(HTTPStatus.NOT_FOUND, "There is nothing at this path; see openapi.json for the paths.")
    allowed = ", ".join(methods)
    return problem(HTTPStatus.METHOD_NOT_ALLOWED, f"This path takes {allowed}.", headers={"Allow": allowed})
