import json
from collections.abc import Mapping

import azure.functions as func
import pytest

from durable_retry import routing
from durable_retry.base.names import Role
from durable_retry.http.callers import ANYBODY, caller_of, key_of
from durable_retry.http.routes import Route
from durable_retry.hub.task_hub import TaskHub

KEY = "a-function-key"


def a_request(headers: Mapping[str, str], params: Mapping[str, str] | None = None) -> func.HttpRequest:
    return func.HttpRequest(
        "POST", "http://localhost/api/x", headers=dict(headers), params=dict(params or {}), body=b""
    )


def test_without_settings_anybody_is_an_operator() -> None:
    assert caller_of(a_request({"x-functions-key": KEY})) == ANYBODY
    assert ANYBODY.role is Role.OPERATOR


@pytest.mark.parametrize(
    ("headers", "params"),
    [
        ({"x-functions-key": KEY}, {}),
        ({}, {"code": KEY}),
        ({}, {"Code": KEY}),  # as the host
    ],
)
def test_a_key_is_read_wherever_the_host_reads_it(headers: dict[str, str], params: dict[str, str]) -> None:
    assert key_of(a_request(headers, params)) == KEY


@pytest.mark.parametrize(
    ("headers", "params"),
    [
        # The host joins the values of a name that was sent twice.
        ({"x-functions-key": f"{KEY},x"}, {}),
        ({"x-functions-key": f"{KEY},{KEY}"}, {}),
        ({}, {"code": f"x,{KEY}"}),
        ({"x-functions-key": KEY}, {"code": "x"}),
        ({"x-functions-key": KEY}, {"code": KEY}),
        ({"x-functions-key": ""}, {"code": KEY}),
        ({}, {"code": KEY, "CODE": KEY}),
    ],
)
async def test_several_keys_are_refused(headers: dict[str, str], params: dict[str, str]) -> None:
    route = route_of("archive_dead_letter")
    answer = await route.respond(a_request(headers, params), TaskHub("{}"), {"dead_letter_id": "x"})
    document = json.loads(answer.get_body())
    assert (answer.status_code, answer.mimetype) == (401, "application/problem+json")
    assert document["type"] == "/problems/unauthorized"
    assert "more than one function key" in document["detail"]


READS_WITHOUT_GET = {"preview_policy"}
SHOWS_TO_OPERATORS_ONLY = {"list_histories"}


@pytest.mark.parametrize("route", routing.table(), ids=lambda route: route.function)
def test_only_get_and_previews_need_no_operator(route: Route) -> None:
    reads = route.anonymous or route.method == "GET" or route.function in READS_WITHOUT_GET
    assert (Role.READER in route.roles) is (reads and route.function not in SHOWS_TO_OPERATORS_ONLY)
    assert Role.OPERATOR in route.roles
    assert (Role.NONE in route.roles) is route.anonymous
    assert (403 in [status.value for status in route.problems]) is not route.anonymous


def route_of(function: str) -> Route:
    (route,) = (each for each in routing.table() if each.function == function)
    return route
