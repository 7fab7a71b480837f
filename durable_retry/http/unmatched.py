"""Requests below the API's paths that no route takes: 404, or 405 where the path takes other methods.

The host's own answer to them has no body. It gives a request to the first function, by name, whose route
matches; so the name of this one comes after those of all routes. Paths that are not the API's stay the app's.
"""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

import azure.functions as func

from durable_retry.http.answers import problem
from durable_retry.http.routes import Route

NAME: Final = "unmatched_request"

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


def unmatched_path(routes: Iterable[Route]) -> str:
    """Return the path of the function: what is at a route, and everything below a route with parameters."""
    wholes: set[str] = set()
    heads: set[str] = set()
    for route in routes:
        first = re.escape(route.path.split("/")[0])
        (heads if "/" in route.path else wholes).add(first)
    under = "|".join(sorted(heads))
    alone = "|".join(sorted(wholes - heads))
    return f"{{*path:regex(^(?:(?:{under})(?:/.*)?|{alone})$)}}"


def methods_at(path: str, routes: Iterable[Route]) -> list[str]:
    """Return the methods that a path takes, in their order."""
    found = {route.method for route in routes if _pattern_of(route).fullmatch(path.strip("/"))}
    return sorted(found)


def _pattern_of(route: Route) -> re.Pattern[str]:
    pattern = re.sub(r"\\\{(\\\*)?\w+\\\}", lambda name: ".+" if name[1] else "[^/]+", re.escape(route.path))
    return re.compile(pattern, re.IGNORECASE)


def answer_unmatched(path: str, routes: Iterable[Route]) -> func.HttpResponse:
    """Answer a request whose path or method no route has."""
    methods = methods_at(path, routes)
    if not methods:
        return problem(HTTPStatus.NOT_FOUND, "There is nothing at this path; see openapi.json for the paths.")
    allowed = ", ".join(methods)
    detail = f"This path takes {allowed}."
    return problem(HTTPStatus.METHOD_NOT_ALLOWED, detail, headers={"Allow": allowed})
