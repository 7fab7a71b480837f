import json
import re
from itertools import combinations
from typing import Final

import azure.functions as func
import pytest

from durable_retry.http.dispatch import pattern_of, responder
from durable_retry.http.routes import OK, Route, RouteAnswer, Routes
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import REST
from durable_retry.routing import collections, routes_of, table
from onebox.http.routes import RouteTemplate, split_path

ROUTES: Final = table()
LITERALS: Final = sorted(
    {part for route in ROUTES for part in route.path.split("/") if not part.startswith("{")}
)
SAMPLES: Final = ("op-4xqyimitrd4itkwffnbzz6imacpmhhhz", "a", "summaryx", "x-summary", "a.b", "-1", "%7Bx%7D")


def shown(*document: str) -> func.HttpResponse:
    return func.HttpResponse(json.dumps(document), mimetype="application/json")


def routes_of_x() -> Routes:
    """A literal beside a parameter, declared after it, and a path that takes slashes."""
    routes = Routes("x")
    answers = (RouteAnswer(OK, "Shown."),)

    @routes.get("x/{id}", answers=answers)
    async def one(id: str) -> func.HttpResponse:  # noqa: A002 - the name in the path
        return shown("one", id)

    @routes.get("x/sum", answers=answers)
    async def total() -> func.HttpResponse:
        return shown("total")

    @routes.post("x/{id}/notes", answers=answers)
    async def note(id: str) -> func.HttpResponse:  # noqa: A002 - as above
        return shown("note", id)

    @routes.get("x/files/{*path}", answers=answers)
    async def file(path: str) -> func.HttpResponse:
        return shown("file", path)

    return routes


async def answer(method: str, path: str) -> func.HttpResponse:
    request = func.HttpRequest(method, f"http://localhost/api/{path}", body=b"")
    return await responder(routes_of_x().table)(request, TaskHub("hub"))


@pytest.mark.parametrize("path", ["x/sum", "x/nothing/here", "x/1/notes"])
async def test_no_answer_is_kept_by_others_or_taken_for_a_page(path: str) -> None:
    """Neither a document, nor a 404, nor a 405."""
    headers = (await answer("GET", path)).headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"


async def test_a_route_may_say_itself_how_long_its_answer_is_kept() -> None:
    routes = Routes("x")

    @routes.get("x", answers=(RouteAnswer(OK, "Shown."),))
    async def page() -> func.HttpResponse:
        return func.HttpResponse("", headers={"cache-control": "no-cache"})

    request = func.HttpRequest("GET", "http://localhost/api/x", body=b"")
    headers = (await responder(routes.table)(request, TaskHub("hub"))).headers
    assert headers["Cache-Control"] == "no-cache"
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("method", "path", "document"),
    [
        ("GET", "x/1", ["one", "1"]),
        ("GET", "x/1/", ["one", "1"]),
        ("GET", "X/sum", ["total"]),
        ("GET", "x/SUM", ["total"]),
        ("GET", "x/sums", ["one", "sums"]),
        ("GET", "x/a%2Fb%20c", ["one", "a/b c"]),
        ("GET", "x/files/a/b.js", ["file", "a/b.js"]),
        ("GET", "x/files/a://b", ["file", "a://b"]),
        ("GET", "x/1?of=http://a/x/sum", ["one", "1"]),
        ("POST", "x/sum/notes", ["note", "sum"]),
    ],
)
async def test_a_literal_comes_before_a_parameter(method: str, path: str, document: list[str]) -> None:
    found = await answer(method, path)
    assert (found.status_code, json.loads(found.get_body())) == (200, document)


@pytest.mark.parametrize("path", ["x", "x/1/2", "x/1/notes/2", "y/1"])
async def test_an_unknown_path_is_404(path: str) -> None:
    found = await answer("GET", path)
    assert found.status_code == json.loads(found.get_body())["status"] == 404
    assert "openapi.json" in json.loads(found.get_body())["detail"]


@pytest.mark.parametrize(("path", "allowed"), [("x/sum", "GET"), ("X/1/notes/", "POST")])
async def test_another_method_is_405_with_those_that_the_path_takes(path: str, allowed: str) -> None:
    found = await answer("OPTIONS", path)
    assert found.status_code == json.loads(found.get_body())["status"] == 405
    assert found.headers["Allow"] == allowed
    assert found.mimetype == "application/problem+json"


async def test_the_head_of_a_route_is_that_of_its_get() -> None:
    assert (await answer("HEAD", "x/sum")).status_code == 200
    assert (await answer("HEAD", "x/1/notes")).status_code == 405


def template_of(route: Route) -> RouteTemplate:
    (found,) = (each for each in collections() if each.has(route.path))
    return RouteTemplate.parse(f"api/{found.path}")


def asked(route: Route, value: str) -> str:
    return re.sub(r"\{\*?\w+\}", value, route.path)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.function)
def test_the_host_gives_a_routes_requests_to_its_collection(route: Route) -> None:
    for value in SAMPLES:
        assert template_of(route).match(split_path(f"api/{asked(route, value)}")) is not None


def test_no_request_fits_routes_of_which_none_comes_first() -> None:
    """Two routes of one method may fit one request only where one has a literal for the other's parameter."""
    for one, other in combinations(ROUTES, 2):
        parts = [part.startswith("{") for part in one.path.split("/")]
        theirs = [part.startswith("{") for part in other.path.split("/")]
        if one.method != other.method or parts != theirs:
            continue
        for value in (*SAMPLES, *LITERALS):
            for request in (asked(one, value), asked(other, value)):
                fits = [pattern_of(each.path).fullmatch(request) is not None for each in (one, other)]
                assert not all(fits), (one.path, other.path)


def test_only_below_a_route_with_a_longer_path_a_collection_takes_everything() -> None:
    """Without a prefix of their own, routes leave other paths to the app: `health/live`, `metrics/mine`."""
    for collection in collections():
        has_longer = any("/" in route.path for route in routes_of(collection))
        assert collection.path.endswith(REST) is has_longer, collection.path


def test_a_collection_needs_no_key_when_none_of_its_routes_does() -> None:
    for collection in collections():
        assert {route.anonymous for route in routes_of(collection)} == {collection.anonymous}


def test_every_declared_route_is_of_a_collection() -> None:
    declared = {route.function for each in collections() for route in routes_of(each)}
    assert len(declared) == len(ROUTES)
    for collection in collections():
        for reference in collection.routes:
            module, _, name = reference.partition(":")
            routes = getattr(__import__(module, fromlist=[name]), name)
            assert {route.function for route in routes.table} <= declared


@pytest.mark.parametrize("path", ["", "orders", "orders/7", "health/live", "operationsx", "metrics/mine"])
def test_the_paths_of_the_app_are_left_alone(path: str) -> None:
    templates = [RouteTemplate.parse(f"api/{each.path}") for each in collections()]
    assert [each.text for each in templates if each.match(split_path(f"api/{path}")) is not None] == []
