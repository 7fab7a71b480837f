"""Routes that two functions could answer: the path that keeps each request with its own."""

import re
from collections.abc import Iterable, Sequence

from durable_retry.http.routes import Route


def constrained_path(route: Route, among: Iterable[Route]) -> str:
    """Return a route's path as the host gets it: its parameters do not take the literals of other routes.

    The host tries routes in the order of the functions' names and gives a request to the first that matches:
    `operations/{operation_id}`, of `get_operation`, would take what is for `operations/summary`. ASP.NET
    matches an inline `regex` without regard to case.
    """
    mine = route.path.split("/")
    refused: dict[int, list[str]] = {}
    for other in among:
        theirs = other.path.split("/")
        if other.method == route.method and len(theirs) == len(mine):
            place = _literal_that_is_taken(mine, theirs)
            if place is not None and theirs[place] not in refused.setdefault(place, []):
                refused[place].append(theirs[place])
    for place, literals in refused.items():
        others = "".join(f"(?!{re.escape(literal)}$)" for literal in sorted(literals))
        mine[place] = f"{mine[place][:-1]}:regex(^{others}.+$)}}"
    return "/".join(mine)


def _literal_that_is_taken(mine: Sequence[str], theirs: Sequence[str]) -> int | None:
    """Return where a path takes another one's literal as its parameter; None when no request fits both."""
    place = None
    for index, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        if one.startswith("{") and not other.startswith("{"):
            place = index if place is None else place
        elif not other.startswith("{") and one.lower() != other.lower():
            return None
    return place
