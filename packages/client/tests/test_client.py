"""The client over HTTP: what it sends, when it sends again, and what it makes of answers.

These tests need the package and pytest, and run on every Python that it is for.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import inspect
import json
import math
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any, TypeVar

import httpx
import pytest
from pydantic import BaseModel

from durable_retry_client import (
    AsyncClient,
    Client,
    OperationFailed,
    RefusedError,
    UnreachableError,
    flows,
)
from durable_retry_client.documents import StartedReplay

T = TypeVar("T")

AT = "2026-01-02T03:04:05Z"
ACCEPTED = {"operation_id": "op-1", "key": "k-1", "status": "pending", "status_url": "http://app/x"}
OPERATION: dict[str, Any] = {
    "operation_id": "op-1",
    "key": "k-1",
    "dependency": "payments",
    "correlation_id": None,
    "source": "http",
    "status": "succeeded",
    "attempt_count": 1,
    "attempts": [],
    "next_attempt_at": None,
    "deadline_at": None,
    "result": {"value": 7},
    "dead_letter": None,
    "events": [],
    "created_at": AT,
    "updated_at": AT,
    "a_later_field": 1,
}
LETTER = {"id": "dl-1", "category": "malformed", "reason": "RejectedByDependency", "detail": "422"}
BAD = {
    "type": "/p",
    "title": "Bad",
    "status": 400,
    "detail": "1 mistake.",
    "errors": [{"pointer": "/a", "detail": "no"}],
}

Step = httpx.Response | Exception


class Api:
    """An API that answers what it is told to, one after the other; the last one for ever."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise step
        return step

    @property
    def client(self) -> Client:
        return Client(
            "http://app",
            function_key="secret",
            transport=httpx.MockTransport(self.answer),
            sleep=self.pauses.append,
        )

    @property
    def async_client(self) -> AsyncClient:
        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)

        return AsyncClient("http://app", transport=httpx.MockTransport(self.answer), sleep=sleep)

    def bodies(self) -> Iterator[Any]:
        return (json.loads(request.content) for request in self.requests)


def accepted(**headers: str) -> httpx.Response:
    return httpx.Response(202, json=ACCEPTED, headers=headers)


def shown(**changed: Any) -> httpx.Response:
    return httpx.Response(200, json=OPERATION | changed)


def away(status: int = 503, **headers: str) -> httpx.Response:
    return httpx.Response(status, headers=headers)


def run(awaited: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(awaited)


@pytest.mark.parametrize(("scheme", "proxies"), [("http", 0), ("https", 1)])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_no_proxy_reads_the_function_key(
    kind: type[Client | AsyncClient], scheme: str, proxies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://proxy.test:3128")
    http = kind(f"{scheme}://a.test", function_key="secret")._http
    is_direct = http._transport_for_url(httpx.URL(f"{scheme}://a.test")) is http._transport
    assert is_direct is (proxies == 0)


@pytest.mark.parametrize("key", ["sesame\n", " sesame", "sesame\r", "ses ame", "sesamé", "\0sesame"])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_key_that_no_header_can_have_is_refused_and_not_shown(
    kind: type[Client | AsyncClient], key: str
) -> None:
    with pytest.raises(ValueError, match=r"^the function key has a space") as caught:
        kind("http://a.test", function_key=key)
    assert "ses" not in str(caught.value)


def test_a_submission_is_the_body_of_the_api() -> None:
    api = Api(accepted())
    submitted = api.client.submit(dependency="payments", request={"path": "/charges"}, key="k-1")
    (request,) = api.requests
    assert (request.method, str(request.url)) == ("POST", "http://app/api/operations")
    assert request.headers["x-functions-key"] == "secret"
    assert list(api.bodies()) == [{"dependency": "payments", "request": {"path": "/charges"}, "key": "k-1"}]
    assert (submitted.operation_id, submitted.is_replayed, submitted.operation) == ("op-1", False, None)


def test_the_end_may_be_waited_for() -> None:
    api = Api(accepted())
    api.client.submit(handler="ship", key="k-1", wait_seconds=3)
    assert api.requests[0].headers["Prefer"] == "wait=3"


@dataclasses.dataclass
class Line:
    sku: str


class Order(BaseModel):
    number: int
    lines: list[Line]
    at: datetime


def test_models_and_dataclasses_are_sent_as_json() -> None:
    api = Api(accepted())
    order = Order(number=7, lines=[Line("a")], at=datetime(2026, 1, 2, tzinfo=timezone.utc))
    api.client.submit(handler="ship", input={"order": order, "line": Line("b")}, key="k-1")
    shipped = {"number": 7, "lines": [{"sku": "a"}], "at": "2026-01-02T00:00:00Z"}
    assert next(api.bodies())["input"] == {"order": shipped, "line": {"sku": "b"}}
    assert api.requests[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "value", [{"a"}, b"a", math.nan, iter("a"), object()], ids=lambda value: type(value).__name__
)
@pytest.mark.parametrize("path", ["operations", "batches"])
def test_a_value_that_json_does_not_have_is_not_sent(path: str, value: Any) -> None:
    api = Api(accepted())
    body = {"items": [{"request": {"json": {"amount": value}}}]}
    with pytest.raises((TypeError, ValueError)):
        api.client.request("POST", path, body=body)
    with pytest.raises((TypeError, ValueError)):
        run(api.async_client.request("POST", path, body=body))
    assert api.requests == []


def test_a_submission_without_a_key_is_sent_again_under_the_same_one() -> None:
    api = Api(httpx.ReadTimeout("lost"), away(502), accepted(**{"Idempotent-Replayed": "true"}))
    assert api.client.submit(handler="ship", input={}).is_replayed
    keys = [body["key"] for body in api.bodies()]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert keys[0].startswith("client-")


def test_an_operation_that_ends_within_the_wait_comes_with_its_document() -> None:
    api = Api(shown())
    submitted = api.client.submit(handler="ship", input={}, key="k-1", wait_seconds=10)
    assert api.requests[0].headers["Prefer"] == "wait=10"
    assert submitted.operation is not None
    assert submitted.operation.result == {"value": 7}


def test_waits_grow_and_are_no_shorter_than_the_answer_asks_for() -> None:
    api = Api(away(), away(429, **{"Retry-After": "7"}), away(), away(), accepted())
    api.client.submit(handler="ship", key="k-1")
    assert len(api.pauses) == 4
    assert 7 <= api.pauses[1] <= 8
    assert all(pause <= 4 for at, pause in enumerate(api.pauses) if at != 1)


def test_a_wait_until_a_date_is_waited_for() -> None:
    until = datetime.now(timezone.utc) + timedelta(seconds=60)
    api = Api(away(503, **{"Retry-After": format_datetime(until, usegmt=True)}), shown())
    api.client.get("op-1")
    assert 50 <= api.pauses[0] <= 61


@pytest.mark.parametrize("text", ["soon", "Sat, 02 Jan 2100 03:04:05 -0000", "Fri, 02 Jan 2026 03:04:05 GMT"])
def test_a_wait_that_cannot_be_read_or_is_over_asks_for_nothing(text: str) -> None:
    api = Api(away(503, **{"Retry-After": text}), shown())
    api.client.get("op-1")
    assert api.pauses[0] <= 0.5


def test_a_wait_that_is_too_long_is_left_to_the_caller() -> None:
    api = Api(away(429, **{"Retry-After": "3600"}))
    with pytest.raises(RefusedError, match="429"):
        api.client.get("op-1")
    assert api.pauses == []


def test_an_answer_that_asks_for_a_pause_does_not_make_a_wait_longer() -> None:
    api = Api(away(503, **{"Retry-After": "60"}))
    with pytest.raises(
        TimeoutError, match="GET http://app/api/operations/op-1: no answer of success in time"
    ):
        api.client.wait("op-1", timeout_seconds=5)
    assert (len(api.requests), api.pauses) == (1, [])


def test_it_gives_up_after_its_tries() -> None:
    api = Api(httpx.ConnectError("nobody there"))
    with pytest.raises(UnreachableError, match=r"GET http://app/api/operations/op-1: .*nobody there"):
        api.client.get("op-1")
    assert len(api.requests) == 5


@pytest.mark.parametrize(
    ("name", "limit", "problem"),
    [("_MOST_ANSWER_BYTES", 100, "over 100 bytes"), ("_MOST_ANSWER_SECONDS", -1.0, "took over -1.0 s")],
)
@pytest.mark.parametrize("kind", ["client", "async_client"])
def test_an_answer_without_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: float, problem: str, kind: str
) -> None:
    monkeypatch.setattr(flows, name, limit)
    api = Api(shown())
    with pytest.raises(UnreachableError, match=problem):
        run(api.async_client.get("op-1")) if kind == "async_client" else api.client.get("op-1")


@pytest.mark.parametrize("kind", ["client", "async_client"])
def test_an_answer_in_an_encoding_that_it_is_not_in_is_none(kind: str) -> None:
    gzipped = {"Content-Encoding": "gzip"}
    api = Api(*(httpx.Response(200, headers=gzipped, stream=httpx.ByteStream(b"none")) for _ in range(5)))
    with pytest.raises(UnreachableError, match="DecodingError"):
        run(api.async_client.get("op-1")) if kind == "async_client" else api.client.get("op-1")


def test_a_compressed_answer_is_read() -> None:
    packed = gzip.compress(json.dumps(OPERATION).encode())
    api = Api(httpx.Response(200, headers={"Content-Encoding": "gzip"}, content=packed))
    assert api.client.get("op-1").result == {"value": 7}


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_a_part_of_a_path_that_is_empty_or_climbs_is_not_sent(part: str) -> None:
    api = Api(shown())
    with pytest.raises(ValueError, match=f"'operations/{part}/cancel' leads to another path"):
        api.client.cancel(part)
    assert api.requests == []


def test_a_refusal_is_raised_at_once_with_every_mistake() -> None:
    api = Api(httpx.Response(400, json=BAD))
    with pytest.raises(RefusedError, match=r"1 mistake\.: /a: no") as caught:
        api.client.submit(handler="ship", key="k-1")
    assert len(api.requests) == 1
    assert caught.value.problem is not None
    assert caught.value.problem.errors[0].pointer == "/a"


@pytest.mark.parametrize(("status", "words"), [(404, "404 Not Found"), (200, "200 OK")])
def test_an_answer_of_something_else_is_raised_with_its_status(status: int, words: str) -> None:
    with pytest.raises(RefusedError, match=f"{words}: not an answer of Durable Retry") as caught:
        Api(httpx.Response(status, text="<html>")).client.get("op-1")
    assert (caught.value.status, caught.value.problem) == (status, None)
    assert caught.value.answer.text == "<html>"


def test_a_submission_that_something_else_answers_is_refused() -> None:
    with pytest.raises(RefusedError, match="not an answer of Durable Retry"):
        Api(httpx.Response(202, text="<html>")).client.submit(handler="ship")


@pytest.mark.parametrize("url", ["app:7071", "ftp://app", "localhost", "http://", ""])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_what_is_no_url_of_an_app_is_refused_at_once(kind: type[Client | AsyncClient], url: str) -> None:
    with pytest.raises(ValueError, match="is not the URL of an app"):
        kind(url)


def test_a_wait_looks_until_the_end() -> None:
    api = Api(shown(status="running"), shown(status="waiting_retry"), shown())
    assert api.client.wait("op-1", timeout_seconds=60).status == "succeeded"
    assert api.pauses == pytest.approx([0.25, 0.375])


def test_a_wait_for_a_dead_letter_raises_it() -> None:
    with pytest.raises(OperationFailed) as caught:
        Api(shown(status="dead_lettered", dead_letter=LETTER)).client.wait("op-1", timeout_seconds=60)
    assert (caught.value.dead_letter_id, caught.value.category) == ("dl-1", "malformed")
    assert str(caught.value) == "op-1, dead_lettered, RejectedByDependency, 422"
    assert caught.value.operation.key == "k-1"


def test_a_wait_for_a_cancelled_one_raises_it() -> None:
    with pytest.raises(OperationFailed, match=r"^op-1, cancelled$") as caught:
        Api(shown(status="cancelled")).client.wait("op-1", timeout_seconds=60)
    assert (caught.value.dead_letter_id, caught.value.reason, caught.value.detail) == (None, None, "")


def test_a_wait_ends_in_time() -> None:
    with pytest.raises(TimeoutError, match="op-1 is running"):
        Api(shown(status="running")).client.wait("op-1", timeout_seconds=0)


def test_operations_are_steered() -> None:
    api = Api(httpx.Response(202, json={"operation_id": "op-1", "status": "running"}))
    api.client.cancel("op-1")
    api.client.retry_now("op-1")
    assert [request.url.path for request in api.requests] == [
        "/api/operations/op-1/cancel",
        "/api/operations/op-1/retry-now",
    ]


def test_a_replay_whose_answer_is_lost_is_not_sent_again() -> None:
    api = Api(httpx.ReadTimeout("lost"))
    with pytest.raises(UnreachableError):
        api.client.replay("dl-1", note="fixed")
    assert list(api.bodies()) == [{"note": "fixed"}]


def test_a_replay_that_was_not_started_is_sent_again() -> None:
    api = Api(httpx.ConnectError("nobody"), away(503), httpx.Response(202, json={"operation_id": "op-1"}))
    assert api.client.replay("dl-1") == "op-1"


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://app/", "http://app/api/operations/op-1"),
        ("http://app/api", "http://app/api/operations/op-1"),
        ("http://app/api/retries/", "http://app/api/retries/operations/op-1"),
    ],
)
def test_a_url_with_a_path_is_that_of_the_api(url: str, asked: str) -> None:
    api = Api(shown())
    with Client(url, transport=httpx.MockTransport(api.answer)) as client:
        client.get("op-1")
    assert str(api.requests[0].url) == asked


def test_the_client_to_await_does_the_same() -> None:
    api = Api(away(), accepted(), shown(status="running"), shown(), shown())

    async def program() -> None:
        async with api.async_client as client:
            submitted = await client.submit(handler="ship", input={})
            assert (await client.wait(submitted.operation_id, timeout_seconds=60)).result == {"value": 7}
            assert (await client.get("op-1")).is_finished

    run(program())
    assert len(api.pauses) == 2


def test_the_client_to_await_steers_and_replays() -> None:
    api = Api(
        httpx.ReadTimeout("lost"), httpx.Response(202, json={"operation_id": "op-1", "status": "running"})
    )

    async def program() -> str:
        async with api.async_client as client:
            await client.cancel("op-1")
            await client.retry_now("op-1")
            return await client.replay("dl-1")

    assert run(program()) == "op-1"


def test_what_a_later_version_adds_to_an_answer_is_ignored() -> None:
    assert StartedReplay.model_validate_json('{"operation_id": "op-1", "later": 1}').operation_id == "op-1"


def test_a_pause_is_chosen_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[float, float]] = []

    def uniform(least: float, most: float) -> float:
        chosen.append((least, most))
        return most

    draw: Callable[[float, float], float] = uniform
    monkeypatch.setattr("durable_retry_client.flows.random.uniform", draw)
    api = Api(away(), away(), shown())
    api.client.get("op-1")
    assert chosen == [(0, 0.5), (0, 1.0)]
    assert api.pauses == [0.5, 1.0]


def answered(document: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=document)


def a_page(*items: Any, cursor: str | None = None) -> httpx.Response:
    return answered({"items": items, "next_cursor": cursor})


def test_a_list_is_read_page_by_page() -> None:
    api = Api(a_page({"n": 1}, cursor="c 2"), a_page({"n": 2}))
    assert list(api.client.items("dead-letters/groups", status="new", q="a b")) == [{"n": 1}, {"n": 2}]
    assert {request.url.path for request in api.requests} == {"/api/dead-letters/groups"}
    assert [dict(request.url.params) for request in api.requests] == [
        {"status": "new", "q": "a b", "limit": "200"},
        {"status": "new", "q": "a b", "limit": "200", "cursor": "c 2"},
    ]
    api = Api(a_page({"n": 1}, cursor="c"), a_page({"n": 2}))

    async def numbers() -> list[int]:
        return [item["n"] async for item in api.async_client.items("operations")]

    assert run(numbers()) == [1, 2]


def test_any_request_has_its_query_and_body_and_returns_json() -> None:
    api = Api(answered({"matched": 3}), answered({"items": []}))
    body = {"filter": {"dependency": "payments"}, "dry_run": True}
    assert api.client.request("POST", "/bulk-actions", body=body) == {"matched": 3}
    assert api.client.request("GET", "order-lanes", query={"order_key": "a/b"}) == {"items": []}
    assert next(api.bodies()) == body
    assert api.requests[0].url.path == "/api/bulk-actions"
    assert str(api.requests[1].url) == "http://app/api/order-lanes?order_key=a%2Fb"
    headers = {"Idempotency-Key": "k-1"}
    assert api.client.request("GET", ("order-lanes", "a/b"), headers=headers) == {"items": []}
    assert str(api.requests[2].url) == "http://app/api/order-lanes/a%2Fb"
    assert api.requests[2].headers["Idempotency-Key"] == "k-1"
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
