"""The client over HTTP: what it sends, when it sends again, and what it makes of answers."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

import durable_retry
from durable_retry.api import described, table
from durable_retry.client import (
    AsyncClient,
    Client,
    Operation,
    OperationFailed,
    RefusedError,
    UnreachableError,
    documents,
)
from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.dead_letters.document import StartedReplay
from durable_retry.engine.operations.status import AcceptedOperation

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

type Step = httpx.Response | Exception


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
        import json  # noqa: PLC0415 - of this alone

        return (json.loads(request.content) for request in self.requests)


def accepted(**headers: str) -> httpx.Response:
    return httpx.Response(202, json=ACCEPTED, headers=headers)


def shown(**changed: Any) -> httpx.Response:
    return httpx.Response(200, json=OPERATION | changed)


def away(status: int = 503, **headers: str) -> httpx.Response:
    return httpx.Response(status, headers=headers)


@pytest.mark.parametrize(("scheme", "proxies"), [("http", 0), ("https", 1)])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_no_proxy_reads_the_function_key(
    kind: type[Client] | type[AsyncClient], scheme: str, proxies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://proxy.test:3128")
    http = kind(f"{scheme}://a.test", function_key="secret")._http
    is_direct = http._transport_for_url(httpx.URL(f"{scheme}://a.test")) is http._transport
    assert is_direct is (proxies == 0)


def test_a_submission_is_the_body_of_the_api() -> None:
    api = Api(accepted())
    submitted = api.client.submit(dependency="payments", request={"path": "/charges"}, key="k-1")
    (request,) = api.requests
    assert (request.method, str(request.url)) == ("POST", "http://app/api/operations")
    assert request.headers["x-functions-key"] == "secret"
    assert list(api.bodies()) == [{"dependency": "payments", "request": {"path": "/charges"}, "key": "k-1"}]
    assert (submitted.operation_id, submitted.is_replayed, submitted.operation) == ("op-1", False, None)


@durable_retry.operation("charge-by-client", dependency="flaky")
def charge(order: str, amount: int) -> str:
    return f"{order} {amount}"


async def test_a_function_is_submitted_with_its_arguments() -> None:
    api = Api(accepted(), accepted())
    api.client.submit(charge, "o-1", amount=5, key="k-1")
    await api.async_client.submit(charge, "o-1", 5, key="k-1", wait_seconds=3)
    body = {"handler": "charge-by-client", "input": {"order": "o-1", "amount": 5}, "key": "k-1"}
    assert list(api.bodies()) == [body, body]
    assert api.requests[1].headers["Prefer"] == "wait=3"
    with pytest.raises(InvalidInputError, match="/input/amount"):
        api.client.submit(charge, "o-1", amount="five", key="k-1")
    with pytest.raises(LookupError, match="is no operation"):
        api.client.submit(len, "o-1", key="k-1")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "value", [{"a"}, b"a", math.nan, 10**400, {1: "a"}, iter("a")], ids=lambda value: type(value).__name__
)
@pytest.mark.parametrize(
    ("path", "document", "place"),
    [
        ("batches", lambda operation: {"items": [operation]}, "/items/0"),
        ("sagas", lambda operation: {"steps": [{"name": "a", "operation": operation}]}, "/steps/0/operation"),
    ],
    ids=["batch", "saga"],
)
async def test_a_batch_or_a_saga_with_a_value_that_json_does_not_have_is_not_sent(
    path: str, document: Callable[[Any], Any], place: str, value: Any
) -> None:
    api = Api(accepted())
    body = document({"dependency": "payments", "request": {"json": {"amount": value}}})
    with pytest.raises(InvalidInputError) as blocking:
        api.client.request("POST", path, body=body)
    with pytest.raises(InvalidInputError) as awaited:
        await api.async_client.request("POST", path, body=body)
    for refused in (blocking.value, awaited.value):
        assert all(each.pointer.startswith(f"{place}/request/json/amount") for each in refused.problems)
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


def test_a_wait_that_is_too_long_is_left_to_the_caller() -> None:
    api = Api(away(429, **{"Retry-After": "3600"}))
    with pytest.raises(RefusedError, match="429"):
        api.client.get("op-1")
    assert api.pauses == []


def test_it_gives_up_after_its_tries() -> None:
    api = Api(httpx.ConnectError("nobody there"))
    with pytest.raises(UnreachableError, match=r"GET http://app/api/operations/op-1: .*nobody there"):
        api.client.get("op-1")
    assert len(api.requests) == 5


def test_a_refusal_is_raised_at_once_with_every_mistake() -> None:
    api = Api(httpx.Response(400, json=BAD))
    with pytest.raises(RefusedError, match=r"1 mistake\.: /a: no") as caught:
        api.client.submit(handler="ship", key="k-1")
    assert len(api.requests) == 1
    assert caught.value.problem is not None
    assert caught.value.problem.errors[0].pointer == "/a"


def test_an_answer_of_something_else_is_raised_with_its_status() -> None:
    with pytest.raises(RefusedError, match="404 Not Found") as caught:
        Api(httpx.Response(404, text="<html>")).client.get("op-1")
    assert caught.value.problem is None


def test_a_wait_looks_until_the_end() -> None:
    api = Api(shown(status="running"), shown(status="waiting_retry"), shown())
    assert api.client.wait("op-1", timeout_seconds=60).status == "succeeded"
    assert api.pauses == pytest.approx([0.25, 0.375])


def test_a_wait_for_a_dead_letter_raises_it() -> None:
    with pytest.raises(OperationFailed) as caught:
        Api(shown(status="dead_lettered", dead_letter=LETTER)).client.wait("op-1", timeout_seconds=60)
    assert (caught.value.dead_letter_id, caught.value.category) == ("dl-1", "malformed")


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


async def test_the_client_to_await_does_the_same() -> None:
    api = Api(away(), accepted(), shown(status="running"), shown(), shown())
    async with api.async_client as client:
        submitted = await client.submit(handler="ship", input={})
        assert (await client.wait(submitted.operation_id, timeout_seconds=60)).result == {"value": 7}
        assert (await client.get("op-1")).is_finished
    assert len(api.pauses) == 2


async def test_the_client_to_await_steers_and_replays() -> None:
    api = Api(
        httpx.ReadTimeout("lost"), httpx.Response(202, json={"operation_id": "op-1", "status": "running"})
    )
    async with api.async_client as client:
        await client.cancel("op-1")
        await client.retry_now("op-1")
        assert await client.replay("dl-1") == "op-1"


def test_what_the_client_receives_is_what_the_routes_answer_with() -> None:
    answered = {answer.model for route in table() for answer in route.answers}
    assert {Operation, AcceptedOperation, StartedReplay} <= answered


def test_what_a_later_version_adds_to_an_answer_is_ignored() -> None:
    assert StartedReplay.model_validate_json('{"operation_id": "op-1", "later": 1}').operation_id == "op-1"


def test_the_fields_of_a_submission_are_those_of_the_description() -> None:
    theirs = described()["components"]["schemas"]
    assert documents.OperationFields.__annotations__.keys() == theirs["OperationRequest"]["properties"].keys()
    assert documents.ReplayFields.__annotations__.keys() == theirs["ReplayBody"]["properties"].keys()


def test_a_pause_is_chosen_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[float, float]] = []

    def uniform(least: float, most: float) -> float:
        chosen.append((least, most))
        return most

    draw: Callable[[float, float], float] = uniform
    monkeypatch.setattr("durable_retry.client.flows.random.uniform", draw)
    api = Api(away(), away(), shown())
    api.client.get("op-1")
    assert chosen == [(0, 0.5), (0, 1.0)]
    assert api.pauses == [0.5, 1.0]
