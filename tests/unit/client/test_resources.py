"""The methods that both clients have: what is sent, and that both do the same."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from durable_retry.api import described
from durable_retry.client import AsyncClient, Client, RefusedError, UnreachableError
from durable_retry.client.documents import DeadLetterFilters
from tests.unit.client.test_client import Api


def answered(document: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=document)


def a_page(*items: Any, cursor: str | None = None) -> httpx.Response:
    return answered({"items": items, "next_cursor": cursor})


async def test_a_list_is_read_page_by_page() -> None:
    api = Api(a_page({"n": 1}, cursor="c 2"), a_page({"n": 2}))
    assert list(api.client.items("dead-letters/groups", status="new", q="a b")) == [{"n": 1}, {"n": 2}]
    assert {request.url.path for request in api.requests} == {"/api/dead-letters/groups"}
    assert [dict(request.url.params) for request in api.requests] == [
        {"status": "new", "q": "a b", "limit": "200"},
        {"status": "new", "q": "a b", "limit": "200", "cursor": "c 2"},
    ]
    api = Api(a_page({"n": 1}, cursor="c"), a_page({"n": 2}))
    assert [item["n"] async for item in api.async_client.items("operations")] == [1, 2]


type Ask = Callable[[Any], Any]

ASKED: dict[str, Ask] = {
    "GET /api/operations/{operation_id}": lambda client: client.get("x"),
    "POST /api/operations/{operation_id}/cancel": lambda client: client.cancel("x"),
    "POST /api/operations/{operation_id}/retry-now": lambda client: client.retry_now("x"),
    "GET /api/dead-letters": lambda client: client.dead_letters(status="open"),
    "POST /api/dead-letters/{dead_letter_id}/replay": lambda client: client.replay("x", note="mended"),
    "GET /api/outbox": lambda client: client.items("outbox", status="failed"),
    "GET /api/circuits": lambda client: client.request("GET", "circuits"),
    "POST /api/circuits/{dependency}/open": lambda client: client.request(
        "POST", "circuits/x/open", body={"reason": "r"}
    ),
    "DELETE /api/bulk-actions/{action_id}": lambda client: client.request("DELETE", "bulk-actions/x"),
}


def described_answer(route: str) -> Any:
    """The example of a success in the API's description, on the last page where it is a list."""
    method, path = route.split()
    answers = described()["paths"][path][method.lower()]["responses"]
    example = answers[max(status for status in answers if status < "300")]["content"]["application/json"][
        "example"
    ]
    return example | ({"next_cursor": None} if "next_cursor" in example else {})


async def result_of(asked: Any) -> Any:
    """The result of a call of either client; of a list its items."""
    if inspect.isawaitable(asked):
        return await asked
    if inspect.isasyncgen(asked):
        return [item async for item in asked]
    return list(asked) if inspect.isgenerator(asked) else asked


@pytest.mark.parametrize("route", ASKED)
async def test_both_clients_ask_for_the_same_and_read_what_is_described(route: str) -> None:
    api = Api(*(answered(described_answer(route)) for _ in range(2)))
    results = [await result_of(ASKED[route](client)) for client in (api.client, api.async_client)]
    assert results[0] == results[1] != []
    method, path = route.split()
    asked = f"{method} {re.sub('{[a-z_]+}', 'x', path)}"
    assert [f"{request.method} {request.url.path}" for request in api.requests] == [asked, asked]
    assert api.requests[0].content == api.requests[1].content


def test_any_request_has_its_query_and_body_and_returns_json() -> None:
    api = Api(answered({"matched": 3}), answered({"items": []}))
    body = {"filter": {"dependency": "payments"}, "dry_run": True}
    assert api.client.request("POST", "/bulk-actions", body=body) == {"matched": 3}
    assert api.client.request("GET", "order-lanes", query={"order_key": "a/b"}) == {"items": []}
    assert next(api.bodies()) == body
    assert api.requests[0].url.path == "/api/bulk-actions"
    assert str(api.requests[1].url) == "http://app/api/order-lanes?order_key=a%2Fb"
    with pytest.raises(RefusedError, match="404"):
        Api(answered({}, 404)).client.request("GET", "nowhere")


@pytest.mark.parametrize(
    ("method", "body", "sent"),
    [
        ("POST", {"items": []}, 1),
        ("POST", None, 1),
        ("POST", {"items": [], "key": "k-1"}, 5),
        ("GET", None, 5),
        ("DELETE", None, 5),
    ],
)
def test_a_request_is_sent_again_only_where_a_second_one_does_no_harm(
    method: str, body: Any, sent: int
) -> None:
    api = Api(httpx.ReadTimeout("no answer"))
    with pytest.raises(UnreachableError):
        api.client.request(method, "batches", body=body)
    assert len(api.requests) == sent


def test_a_method_is_documented_on_the_class() -> None:
    assert Client.get.__doc__ == AsyncClient.get.__doc__ == "Return an operation."
    assert inspect.signature(Api().client.get).parameters.keys() == {"operation_id"}


def test_the_filters_of_dead_letters_are_those_of_the_description() -> None:
    parameters = described()["paths"]["/api/dead-letters"]["get"]["parameters"]
    named = {each["name"] for each in parameters if each["in"] == "query"} - {"limit", "cursor"}
    assert DeadLetterFilters.__annotations__.keys() == named
