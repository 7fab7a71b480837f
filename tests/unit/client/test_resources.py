"""Lists, batches, sagas and dead letters with the client: what is sent, and that both clients do the same."""

import inspect
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from durable_retry.api import described
from durable_retry.client import AsyncClient, Client, UnreachableError, filters
from durable_retry.console.bulk.bodies import FilterBody, OperationsBody
from durable_retry.engine.operations.document import ListedOperation
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

ASKED: dict[str, Ask] = {
    "GET /api/operations": lambda client: client.operations(status="succeeded"),
    "GET /api/operations/{operation_id}": lambda client: client.get("x"),
    "POST /api/operations/{operation_id}/cancel": lambda client: client.cancel("x"),
    "POST /api/operations/{operation_id}/retry-now": lambda client: client.retry_now("x"),
    "GET /api/search": lambda client: client.search(q="x"),
    "GET /api/dead-letters": lambda client: client.dead_letters(status="open"),
    "GET /api/dead-letters/{dead_letter_id}": lambda client: client.dead_letter("x"),
    "POST /api/dead-letters/{dead_letter_id}/replay": lambda client: client.replay("x", note="mended"),
    "POST /api/dead-letters/{dead_letter_id}/archive": lambda client: client.archive("x"),
    "POST /api/dead-letters/{dead_letter_id}/restore": lambda client: client.restore("x"),
    "POST /api/dead-letters/{dead_letter_id}/notes": lambda client: client.add_note("x", "told"),
    "GET /api/dead-letters/groups": lambda client: client.causes(status="new"),
    "GET /api/dead-letters/groups/{group}": lambda client: client.cause("x"),
    "POST /api/dead-letters/groups/{group}/acknowledge": lambda client: client.acknowledge_cause("x"),
    "POST /api/dead-letters/groups/{group}/assign": lambda client: client.assign_cause("x", "ada"),
    "POST /api/dead-letters/groups/{group}/resolve": lambda client: client.resolve_cause("x"),
    "POST /api/dead-letters/groups/{group}/notes": lambda client: client.note_cause("x", "told"),
    "GET /api/batches": lambda client: client.batches(key="k"),
    "POST /api/batches": lambda client: client.submit_batch([{"handler": "h", "input": 1}], key="k"),
    "GET /api/batches/{batch_id}": lambda client: client.batch("x"),
    "GET /api/sagas": lambda client: client.sagas(),
    "POST /api/sagas": lambda client: client.submit_saga([{"name": "a", "operation": {"handler": "h"}}]),
    "GET /api/sagas/{saga_id}": lambda client: client.saga("x"),
    "POST /api/sagas/{saga_id}/restart": lambda client: client.restart_saga("x", from_step="a", note="why"),
    "POST /api/dead-letters/replays": lambda client: client.replay_many({}, rate_per_second=5),
    "GET /api/dead-letters/replays/{replay_id}": lambda client: client.replay_of_many("x"),
    "DELETE /api/dead-letters/replays/{replay_id}": lambda client: client.cancel_replay_of_many("x"),
    "POST /api/bulk-actions": lambda client: client.act_on_many("cancel", ids=["op-1"]),
    "GET /api/bulk-actions/{action_id}": lambda client: client.action_on_many("x"),
    "GET /api/bulk-actions/{action_id}/items": lambda client: client.items_of_action("x"),
    "DELETE /api/bulk-actions/{action_id}": lambda client: client.cancel_action_on_many("x"),
    "GET /api/circuits": lambda client: client.circuits(),
    "GET /api/circuits/{dependency}": lambda client: client.circuit("x"),
    "POST /api/circuits/{dependency}/open": lambda client: client.open_circuit("x", reason="r"),
    "POST /api/circuits/{dependency}/close": lambda client: client.close_circuit("x", reason="r"),
    "POST /api/circuits/{dependency}/disable": lambda client: client.disable_circuit(
        "x", reason="r", for_seconds=60
    ),
    "POST /api/circuits/{dependency}/reset": lambda client: client.reset_circuit("x", reason="r"),
    "GET /api/order-lanes": lambda client: client.order_lanes(blocked="true"),
    "GET /api/outbox": lambda client: client.outbox(status="failed"),
    "GET /api/dead-letters/count": lambda client: client.count_dead_letters(status="open"),
    "GET /api/outbox/{event_id}": lambda client: client.event("x"),
    "POST /api/outbox/{event_id}/resend": lambda client: client.resend("x"),
    "GET /api/alerts": lambda client: client.alerts(),
    "POST /api/alerts/silences": lambda client: client.silence("*", for_minutes=5, reason="r"),
    "POST /api/alerts/test": lambda client: client.try_alerts(),
    "DELETE /api/alerts/silences/{silence_id}": lambda client: client.end_silence("x"),
    "GET /api/activity": lambda client: client.activity(kind="action"),
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


def test_a_lane_is_asked_for_by_any_key() -> None:
    lane = {
        "order_key": "a/b",
        "blocked": False,
        "front": None,
        "front_since": None,
        "waiting": 0,
        "queue": [],
    }
    api = Api(answered({"items": [lane], "next_cursor": None}))
    assert api.client.order_lane("a/b").order_key == "a/b"
    assert (api.requests[0].url.path, dict(api.requests[0].url.params)) == (
        "/api/order-lanes",
        {"order_key": "a/b"},
    )


BODIES = {
    "POST /api/batches": "BatchRequest",
    "POST /api/sagas": "SagaRequest",
    "POST /api/dead-letters/replays": "BulkReplayBody",
    "POST /api/bulk-actions": "BulkActionBody",
    "POST /api/circuits/{dependency}/open": "ManualControlBody",
    "POST /api/circuits/{dependency}/disable": "ManualControlBody",
    "POST /api/alerts/silences": "SilenceBody",
}


@pytest.mark.parametrize("route", BODIES)
def test_what_is_sent_has_the_described_members(route: str) -> None:
    api = Api(answered(described_answer(route)))
    ASKED[route](api.client)
    schema = described()["components"]["schemas"][BODIES[route]]
    sent = json.loads(api.requests[0].content)
    assert set(schema.get("required", ())) <= sent.keys() <= schema["properties"].keys()


def test_what_could_arrive_twice_is_sent_again_only_with_a_key() -> None:
    lost = httpx.ReadTimeout("no answer")
    for key, sent in ((None, 1), ("k-1", 5)):
        api = Api(lost)
        with pytest.raises(UnreachableError):
            api.client.submit_batch([{"handler": "h"}], key=key)
        assert len(api.requests) == sent
    unrepeated: list[Ask] = [
        lambda client: client.add_note("dl-1", "told"),
        lambda client: client.resend("ev-1"),
        lambda client: client.silence("*", for_minutes=5, reason="r"),
        lambda client: client.replay_many({}),
    ]
    for ask in unrepeated:
        api = Api(lost)
        with pytest.raises(UnreachableError):
            ask(api.client)
        assert len(api.requests) == 1


async def test_batches_and_sagas_are_waited_for() -> None:
    api = Api(answered(BATCH), answered(BATCH | {"status": "failed"}))
    assert api.client.wait_for_batch("b-1", timeout_seconds=60).status == "failed"
    api = Api(answered(SAGA | {"status": "compensating"}), answered(SAGA | {"status": "compensated"}))
    assert (await api.async_client.wait_for_saga("s-1", timeout_seconds=60)).status == "compensated"
    with pytest.raises(TimeoutError, match="batches b-1 is running"):
        Api(answered(BATCH)).client.wait_for_batch("b-1", timeout_seconds=0)


BULK_REPLAY = described_answer("GET /api/dead-letters/replays/{replay_id}")
BULK_ACTION = described_answer("GET /api/bulk-actions/{action_id}")


async def test_bulk_replays_and_actions_are_waited_for() -> None:
    api = Api(*(answered(BULK_REPLAY | {"status": status}) for status in ("waiting_circuit", "completed")))
    assert api.client.wait_for_replay_of_many("r-1", timeout_seconds=60).status == "completed"
    api = Api(*(answered(BULK_ACTION | {"status": status}) for status in ("running", "cancelled")))
    ended = await api.async_client.wait_for_action_on_many("a-1", timeout_seconds=60)
    assert (ended.status, len(api.pauses)) == ("cancelled", 1)
    api = Api(answered(BULK_ACTION | {"status": "running"}))
    with pytest.raises(TimeoutError, match="bulk-actions a-1 is running"):
        api.client.wait_for_action_on_many("a-1", timeout_seconds=0)


async def test_matches_are_counted_by_a_dry_run() -> None:
    api = Api(answered({"matched": 3}), answered({"matched": 9, "complete": False}))
    assert api.client.count_for_replay({"dependency": "payments"}) == 3
    counted = await api.async_client.count_for_action("archive", filter={"reason": "PoisonMessage"})
    assert (counted.matched, counted.complete) == (9, False)
    assert [json.loads(request.content) for request in api.requests] == [
        {"filter": {"dependency": "payments"}, "dry_run": True},
        {"action": "archive", "filter": {"reason": "PoisonMessage"}, "dry_run": True},
    ]


def test_a_change_of_many_is_previewed() -> None:
    misfit = {"id": "dl-1", "changes": [], "errors": [{"pointer": "/input/n", "detail": "is not there"}]}
    api = Api(answered({"matched": 1, "preview": [misfit]}))
    patch = [{"op": "remove", "path": "/input/n"}]
    previews = api.client.preview_replay({"group": "g-1"}, patch=patch).preview
    assert [each.errors[0].pointer for each in previews or ()] == ["/input/n"]
    assert json.loads(api.requests[0].content) == {
        "filter": {"group": "g-1"},
        "dry_run": True,
        "patch": patch,
    }


@pytest.mark.parametrize(
    ("chosen", "body"),
    [(filters.OpenDeadLetters, FilterBody), (filters.UnfinishedOperations, OperationsBody)],
)
def test_an_action_on_many_chooses_by_what_the_api_takes(chosen: Any, body: type[BaseModel]) -> None:
    fields = set(body.model_fields) - ({"status"} if body is FilterBody else set())
    assert chosen.__annotations__.keys() == fields


def test_a_method_is_documented_on_the_class() -> None:
    assert Client.archive.__doc__ == AsyncClient.archive.__doc__ == "Put a dead letter away."
    assert inspect.signature(Api().client.archive).parameters.keys() == {"dead_letter_id"}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        (filters.OperationFilters, "/api/operations"),
        (filters.SearchFilters, "/api/search"),
        (filters.DeadLetterFilters, "/api/dead-letters"),
        (filters.WorkflowFilters, "/api/batches"),
        (filters.WorkflowFilters, "/api/sagas"),
        (filters.OutboxFilters, "/api/outbox"),
        (filters.ActivityFilters, "/api/activity"),
    ],
)
def test_the_filters_are_those_of_the_description(fields: Any, path: str) -> None:
    parameters = described()["paths"][path]["get"]["parameters"]
    named = {each["name"] for each in parameters if each["in"] == "query"} - {"limit", "cursor"}
    assert fields.__annotations__.keys() == named


def test_a_single_operation_is_waited_for_as_before() -> None:
    api = Api(shown(status="running"), shown())
    assert api.client.wait("op-1", timeout_seconds=60).status == "succeeded"
