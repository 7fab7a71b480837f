"""What no route takes is answered with a problem document, and takes no request from a route."""

import json
from dataclasses import replace

import pytest

from durable_retry.api import paths, table
from durable_retry.http.unmatched import NAME, answer_unmatched, methods_at, unmatched_path
from durable_retry.settings.configuration import Registration
from onebox.http.routes import RouteTemplate, split_path

TEMPLATE = RouteTemplate.parse(f"api/{paths()[NAME]}")


def test_its_name_comes_after_those_of_all_routes() -> None:
    """The host asks functions by their names' order, and this one takes what every route takes."""
    assert max(route.function for route in table()) < NAME


@pytest.mark.parametrize(
    "path", ["operations", "operations/op-1/nothing", "circuits/a/b/c", "health", "DEAD-LETTERS"]
)
def test_it_takes_paths_of_the_api(path: str) -> None:
    assert TEMPLATE.match(split_path(f"api/{path}")) == {"path": path}


@pytest.mark.parametrize("path", ["", "orders", "orders/7", "health/live", "operationsx", "metrics/mine"])
def test_it_leaves_the_paths_of_the_app_alone(path: str) -> None:
    assert TEMPLATE.match(split_path(f"api/{path}")) is None


def test_below_a_prefix_of_its_own_it_takes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable_retry.api.registration", lambda: Registration(route_prefix="retries"))
    template = RouteTemplate.parse(f"api/retries/{paths()[NAME]}")
    assert template.match(split_path("api/retries/nope/7")) == {"path": "nope/7"}
    assert template.match(split_path("api/nope")) is None


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("operations", ["GET", "POST"]),
        ("Operations/op-1", ["GET"]),
        ("operations/op-1/cancel/", ["POST"]),
        ("dead-letters/replays/r-1", ["DELETE", "GET"]),
        ("dashboard/views/find.js", ["GET"]),
        ("operations/op-1/nothing", []),
        ("openapiXjson", []),
    ],
)
def test_the_methods_of_a_path_are_those_of_its_routes(path: str, methods: list[str]) -> None:
    assert methods_at(path, table()) == methods


def test_another_method_is_405_with_those_that_the_path_takes() -> None:
    answer = answer_unmatched("operations", table())
    assert answer.status_code == json.loads(answer.get_body())["status"] == 405
    assert answer.headers["Allow"] == "GET, POST"
    assert answer.mimetype == "application/problem+json"


def test_an_unknown_path_is_404() -> None:
    answer = answer_unmatched("operations/op-1/nothing", table())
    assert answer.status_code == json.loads(answer.get_body())["status"] == 404
    assert "openapi.json" in json.loads(answer.get_body())["detail"]


def test_only_what_is_below_a_route_with_a_longer_path_is_taken() -> None:
    alone, below = (replace(table()[0], path=path) for path in ("one", "two/{part}"))
    assert unmatched_path([alone, below]) == "{*path:regex(^(?:(?:two)(?:/.*)?|one)$)}"
