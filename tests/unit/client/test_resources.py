"""Lists, batches, sagas and dead letters with the client: what is sent, and that both clients do the same."""

import inspect
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from durable_retry.api import described, table
from durable_retry.client import AsyncClient, Client, UnreachableError, resources
from durable_retry.console.bulk.document import BulkActionDocument, BulkReplayDocument
from durable_retry.console.finding.found import FoundItem
from durable_retry.engine.base.answers import Page
from durable_retry.engine.dead_letters.document import DeadLetterDocument
from durable_retry.engine.operations.document import ListedOperation
from durable_retry.engine.workflows.document import BatchDocument, BatchSummary, SagaDocument
from tests.unit.client.test_client import AT, OPERATION, Api, shown

LISTED = {name: value for name, value in OPERATION.items() if name != "a_later_field"}
COUNTS = dict.fromkeys(
    (
        *("pending", "running", "waiting_retry", "waiting_circuit"),
        *("succeeded", "dead_lettered", "cancelled", "total"),
    ),
    0,
)
BATCH = {
    "batch_id": "b-1",
    "status": "running",
    "max_concurrency": 2,
    "tolerated_failures": 0,
    "counts": COUNTS,
    "created_at": AT,
    "finished_at": None,
    "items": [],
}
SAGA = {"saga_id": "s-1", "status": "running", "created_at": AT, "updated_at": AT}


def answered(document: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=document)


def a_page(*items: Any, cursor: str | None = None) -> httpx.Response:
    return answered({"items": items, "next_cursor": cursor})


async def test_a_list_is_read_page_by_page() -> None:
    api = Api(a_page(LISTED, cursor="c 2"), a_page(LISTED | {"operation_id": "op-2"}))
    found = list(api.client.operations(status="succeeded", q="a b"))
    assert [operation.operation_id for operation in found] == ["op-1", "op-2"]
    assert isinstance(found[0], ListedOperation)
    assert [dict(request.url.params) for request in api.requests] == [
        {"status": "succeeded", "q": "a b", "limit": "200"},
        {"status": "succeeded", "q": "a b", "limit": "200", "cursor": "c 2"},
    ]
    api = Api(a_page(LISTED, cursor="c"), a_page(LISTED))
    assert [operation.key async for operation in api.async_client.operations()] == ["k-1", "k-1"]


type Ask = Callable[[Any], Any]

EMPTY: dict[str, Any] = {"items": [], "next_cursor": None}
ASKED: dict[str, tuple[Ask, Any]] = {
    "GET /api/search": (lambda client: client.search(q="x"), EMPTY),
    "GET /api/dead-letters": (lambda client: client.dead_letters(status="open"), EMPTY),
    "GET /api/batches": (lambda client: client.batches(), EMPTY),
    "GET /api/sagas": (lambda client: client.sagas(), EMPTY),
    "GET /api/batches/b-1": (lambda client: client.batch("b-1"), BATCH),
    "GET /api/sagas/s-1": (lambda client: client.saga("s-1"), SAGA),
    "POST /api/batches": (
        lambda client: client.submit_batch([{"handler": "h", "input": 1}], key="k", max_concurrency=2),
        {"batch_id": "b-1"},
    ),
    "POST /api/sagas": (
        lambda client: client.submit_saga([{"name": "a"}]),
        {"saga_id": "s-1"},
    ),
    "POST /api/dead-letters/replays": (
        lambda client: client.replay_many({"dependency": "d"}, rate_per_second=5),
        {"replay_id": "r-1"},
    ),
    "POST /api/bulk-actions": (
        lambda client: client.act_on_many("cancel", ids=["op-1"]),
        {"action_id": "a-1"},
    ),
}


async def result_of(asked: Any) -> Any:
    """The result of a call of either client; of a list its items."""
    if inspect.isawaitable(asked):
        return await asked
    if inspect.isasyncgen(asked):
        return [item async for item in asked]
    return list(asked) if inspect.isgenerator(asked) else asked


@pytest.mark.parametrize("route", ASKED)
async def test_both_clients_ask_for_the_same(route: str) -> None:
    ask, answer = ASKED[route]
    api = Api(answered(answer), answered(answer))
    results = [await result_of(ask(api.client)), await result_of(ask(api.async_client))]
    assert results[0] == results[1]
    assert [f"{request.method} {request.url.path}" for request in api.requests] == [route, route]
    assert api.requests[0].content == api.requests[1].content


def test_dead_letters_are_put_away_opened_and_noted() -> None:
    api = Api(httpx.ConnectError("away"))
    calls: list[Callable[[], Any]] = [
        lambda: api.client.dead_letter("dl-1"),
        lambda: api.client.archive("dl-1"),
        lambda: api.client.restore("dl-1"),
        lambda: api.client.add_note("dl-1", "told"),
    ]
    for call in calls:
        with pytest.raises(UnreachableError):
            call()
    paths = [request.url.path for request in api.requests[::5]]
    assert paths == [f"/api/dead-letters/dl-1{part}" for part in ("", "/archive", "/restore", "/notes")]


def test_what_could_arrive_twice_is_sent_again_only_with_a_key() -> None:
    lost = httpx.ReadTimeout("no answer")
    for key, sent in ((None, 1), ("k-1", 5)):
        api = Api(lost)
        with pytest.raises(UnreachableError):
            api.client.submit_batch([{"handler": "h"}], key=key)
        assert len(api.requests) == sent
    api = Api(lost)
    with pytest.raises(UnreachableError):
        api.client.add_note("dl-1", "told")
    assert len(api.requests) == 1


async def test_batches_and_sagas_are_waited_for() -> None:
    api = Api(answered(BATCH), answered(BATCH | {"status": "failed"}))
    assert api.client.wait_for_batch("b-1", timeout_seconds=60).status == "failed"
    api = Api(answered(SAGA | {"status": "compensating"}), answered(SAGA | {"status": "compensated"}))
    assert (await api.async_client.wait_for_saga("s-1", timeout_seconds=60)).status == "compensated"
    with pytest.raises(TimeoutError, match="batches b-1 is running"):
        Api(answered(BATCH)).client.wait_for_batch("b-1", timeout_seconds=0)


def test_both_clients_have_the_same_calls() -> None:
    def calls(client: type) -> dict[str, list[str]]:
        public = {name for name in dir(client) if not name.startswith("_")} - {"close", "aclose"}
        return {name: list(inspect.signature(getattr(client, name)).parameters) for name in public}

    assert calls(Client) == calls(AsyncClient)


def test_what_is_read_is_what_the_routes_answer_with() -> None:
    models = {answer.model for route in table() for answer in route.answers}
    lists = {
        Page[ListedOperation],
        Page[FoundItem],
        Page[DeadLetterDocument],
        Page[BatchSummary],
        Page[SagaDocument],
    }
    read = {BatchDocument, SagaDocument, DeadLetterDocument, BulkReplayDocument, BulkActionDocument}
    assert lists | read <= models


@pytest.mark.parametrize(
    ("filters", "path"),
    [
        (resources.OperationFilters, "/api/operations"),
        (resources.SearchFilters, "/api/search"),
        (resources.DeadLetterFilters, "/api/dead-letters"),
    ],
)
def test_the_filters_are_those_of_the_description(filters: Any, path: str) -> None:
    parameters = described()["paths"][path]["get"]["parameters"]
    named = {each["name"] for each in parameters if each["in"] == "query"} - {"limit", "cursor"}
    assert filters.__annotations__.keys() == named


def test_a_single_operation_is_waited_for_as_before() -> None:
    api = Api(shown(status="running"), shown())
    assert api.client.wait("op-1", timeout_seconds=60).status == "succeeded"
