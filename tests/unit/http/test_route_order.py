"""Whatever the names of the functions are, each request goes to the one route that is declared for it.

The host tries routes in the order of the functions' names, and no two of ours may match one
request. onebox's matcher stands in for the host's.
"""

import re
from dataclasses import replace
from itertools import combinations
from typing import Final

import pytest

from durable_retry.api import paths, table
from durable_retry.http.route_order import constrained_path
from durable_retry.http.routes import Route
from onebox.http.routes import RouteTemplate, split_path

ROUTES: Final = table()
LITERALS: Final = sorted(
    {part for route in ROUTES for part in route.path.split("/") if not part.startswith("{")}
)
SAMPLES: Final = ("op-4xqyimitrd4itkwffnbzz6imacpmhhhz", "a", "summaryx", "x-summary", "a.b", "-1", "%7Bx%7D")

PAGE: Final = {"get_dashboard", "get_dashboard_file"}
"""Both answer the bare `dashboard`, and alike: the rest of the path may be empty."""


def template(path: str) -> RouteTemplate:
    return RouteTemplate.parse(f"api/{path}")


def asked(route: Route, value: str) -> list[str]:
    return split_path("api/" + re.sub(r"\{\*?\w+\}", value, route.path))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.function)
def test_a_route_takes_every_request_that_is_for_it_and_no_other_does(route: Route) -> None:
    mine = template(paths()[route.function])
    others = [
        (other, template(paths()[other.function]))
        for other in ROUTES
        if other.method == route.method and other is not route and {other.function, route.function} != PAGE
    ]
    for value in SAMPLES:
        request = asked(route, value)
        assert mine.match(request) is not None
        assert [other.function for other, theirs in others if theirs.match(request) is not None] == []


def test_no_request_fits_two_routes() -> None:
    for one, other in combinations(ROUTES, 2):
        if one.method != other.method or {one.function, other.function} == PAGE:
            continue
        mine, theirs = template(paths()[one.function]), template(paths()[other.function])
        for value in (*SAMPLES, *LITERALS, *map(str.upper, LITERALS)):
            for request in (asked(one, value), asked(other, value)):
                assert mine.match(request) is None or theirs.match(request) is None, "/".join(request)


def test_a_literal_is_refused_by_the_parameters_that_would_take_it() -> None:
    item, summary, part = (
        replace(ROUTES[0], method="GET", path=path) for path in ("x/{a}", "x/sum", "x/{a}/b")
    )
    routes = [item, summary, part]
    assert constrained_path(item, routes) == "x/{a:regex(^(?!sum$).+$)}"
    assert [constrained_path(each, routes) for each in (summary, part)] == ["x/sum", "x/{a}/b"]
    posted = replace(summary, method="POST")
    assert constrained_path(item, [item, posted]) == "x/{a}"
