import asyncio
from collections import Counter
from itertools import islice
from typing import Any
from unittest.mock import AsyncMock

import pytest

from durable_retry.base.names import Role
from durable_retry.features.callers.limit_keys import LimitKeysOfCallers
from durable_retry.features.callers.reading import known_caller
from durable_retry.features.enqueue import enqueuing
from durable_retry.features.enqueue.routes import enqueue_operation
from durable_retry.http import routes
from durable_retry.hub.task_hub import TaskHub
from durable_retry.intake.intake import http_admission
from durable_retry.intake.routes import submit_operation
from durable_retry.operations.routes import cancel_operation, get_operation, retry_operation_now
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.status import ListedOperation
from durable_retry.settings.configuration import app_settings
from durable_retry.upkeep.routes import get_health
from durable_retry_console.finding.routes import list_operations
from scripts.processes import free_port
from tests.support.builders import failing
from tests.support.http import Answered, call
from tests.support.hub import TaskHubStage, binding_for

CALL = {
    "dependency": "payments",
    "key": "evt-1",
    "request": {"method": "POST", "path": "/charges", "json": {"amount": 5}},
}


async def submitted(hub: TaskHubStage, body: Any = CALL, **headers: str) -> Answered:
    return await call(submit_operation, hub.binding, body, headers=headers)


async def until(hub: TaskHubStage, operation_id: str, status: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            answer = await call(get_operation, hub.binding, operation_id=operation_id)
            if answer.body["status"] == status:
                document: dict[str, Any] = answer.body
                return document
            await asyncio.sleep(0.02)


async def test_an_accepted_operation_says_where_to_look(hub: TaskHubStage) -> None:
    answer = await submitted(hub)
    assert answer.status == 202
    assert answer.body["key"] == "evt-1"
    assert answer.body["status_url"].endswith(f"/api/operations/{answer.body['operation_id']}")
    assert answer.headers["Location"] == answer.body["status_url"]
    assert int(answer.headers["Retry-After"]) >= 1


async def test_a_caller_who_waits_gets_the_finished_document(hub: TaskHubStage) -> None:
    answer = await submitted(hub, Prefer="wait=20")
    assert answer.status == 200
    assert answer.body["status"] == "succeeded"
    assert answer.headers["Preference-Applied"] == "wait=20"


async def test_a_caller_who_waits_too_short_gets_202(hub: TaskHubStage) -> None:
    hub.answer = failing(9)
    assert (await submitted(hub, Prefer="wait=1")).status == 202


@pytest.mark.shows("C1")
async def test_a_duplicate_before_the_end_starts_nothing(hub: TaskHubStage) -> None:
    hub.answer = failing(9)
    first = await submitted(hub)
    second = await submitted(hub)
    assert (second.status, second.headers["Idempotent-Replayed"]) == (202, "true")
    assert second.body["operation_id"] == first.body["operation_id"]


async def test_a_duplicate_after_the_end_gets_the_document(hub: TaskHubStage) -> None:
    first = await submitted(hub, Prefer="wait=20")
    second = await submitted(hub)
    assert (second.status, second.headers["Idempotent-Replayed"]) == (200, "true")
    assert second.body == first.body


@pytest.mark.shows("C4")
async def test_a_duplicate_with_another_payload_is_refused(hub: TaskHubStage) -> None:
    await submitted(hub, Prefer="wait=20")
    other = CALL | {"request": {"method": "POST", "path": "/charges", "json": {"amount": 6}}}
    answer = await submitted(hub, other)
    assert answer.status == 422
    assert answer.body["type"].endswith("/idempotency-key-reused")
    assert len(hub.activities) == 1


async def test_the_header_names_the_key_as_well_as_the_body(hub: TaskHubStage) -> None:
    keyless = {name: value for name, value in CALL.items() if name != "key"}
    quoted = await submitted(hub, keyless, **{"Idempotency-Key": '"evt-1"'})
    in_body = await submitted(hub)
    assert quoted.body["operation_id"] == in_body.body["operation_id"]


async def test_two_different_keys_are_a_mistake(hub: TaskHubStage) -> None:
    answer = await submitted(hub, **{"Idempotency-Key": "evt-2"})
    assert answer.status == 400
    assert answer.body["errors"][0]["pointer"] == "/key"


async def test_without_a_key_every_submission_is_new(hub: TaskHubStage) -> None:
    keyless = {name: value for name, value in CALL.items() if name != "key"}
    first, second = await submitted(hub, keyless), await submitted(hub, keyless)
    assert first.body["operation_id"] != second.body["operation_id"]


async def test_a_trap_for_the_codec_is_passed_on_as_data(hub: TaskHubStage) -> None:
    trap = {"__class__": "Popen", "__module__": "subprocess", "__data__": "x"}
    body = CALL | {"request": {"method": "POST", "path": "/charges", "json": trap}}
    answer = await submitted(hub, body, Prefer="wait=20")
    assert answer.body["status"] == "succeeded"
    assert hub.activities[0][1]["operation"]["request"]["json"] == trap


async def test_a_task_hub_that_is_away_is_503_and_says_to_try_again() -> None:
    away = binding_for(free_port())
    answer = await call(get_operation, away, operation_id="op-x")
    assert answer.status == 503
    assert "Retry-After" in answer.headers


async def test_a_submission_beyond_the_limit_is_503_starts_nothing_and_is_accepted_later(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    admission = http_admission()
    monkeypatch.setattr(admission, "limit", 1)
    async with admission.admitted(hub.binding):
        refused = await submitted(hub)
    assert (refused.status, refused.body["type"]) == (503, "/problems/overloaded")
    assert int(refused.headers["Retry-After"]) > 0
    assert hub.activities == []
    accepted = await submitted(hub)
    assert (accepted.status, "Idempotent-Replayed" in accepted.headers) == (202, False)


@pytest.mark.parametrize("route", [submit_operation, enqueue_operation])
async def test_a_caller_with_too_many_limit_keys_is_refused_alone_and_accepted_later(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, route: Any
) -> None:
    names, limit_keys = iter(["shop", "shop", "billing"]), LimitKeysOfCallers(1)
    monkeypatch.setattr(routes, "caller_of", lambda *_: known_caller(next(names), Role.OPERATOR, limit_keys))
    monkeypatch.setattr(enqueuing, "send_message", AsyncMock())
    answers = [
        await call(route, hub.binding, CALL | {"key": key}, headers={"Limit-Key": key})
        for key in ("a", "b", "c")
    ]
    assert [answer.status for answer in answers] == [202, 503, 202]
    assert int(answers[1].headers["Retry-After"]) > 0
    assert answers[1].body["detail"].startswith("shop has used 1 limit key")


async def test_of_a_crowd_as_many_are_accepted_as_have_a_place_and_nothing_is_lost(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 at once, three in four of whom would wait for the end."""
    places = 20
    monkeypatch.setattr(http_admission(), "limit", places)
    goes_on, start = asyncio.Event(), TaskHub.start_operation
    begun: Counter[str] = Counter()

    async def slow(self: TaskHub, operation: OperationInput, *args: Any, **more: Any) -> bool:
        begun[operation.key] += 1
        await goes_on.wait()
        return await start(self, operation, *args, **more)

    monkeypatch.setattr(TaskHub, "start_operation", slow)
    looks = AsyncMock()
    monkeypatch.setattr(TaskHub, "check", looks)

    async def post(number: int) -> Answered:
        headers = {"Prefer": "wait=5"} if number % 4 else {}
        return await submitted(hub, CALL | {"key": f"crowd-{number}"}, **headers)

    crowd = {number: asyncio.create_task(post(number)) for number in range(400)}
    async with asyncio.timeout(60):
        for answered in islice(asyncio.as_completed(crowd.values()), 400 - places):
            await answered
    refused = {number: task.result() for number, task in crowd.items() if task.done()}
    assert {answer.status for answer in refused.values()} == {503}
    assert {answer.body["type"] for answer in refused.values()} == {"/problems/overloaded"}
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in refused.values())
    await asyncio.gather(*(call(get_health, hub.binding) for _ in range(100)))
    assert looks.await_count == 1
    goes_on.set()
    accepted = await asyncio.gather(*(task for number, task in crowd.items() if number not in refused))
    assert {answer.status for answer in accepted} <= {200, 202}
    for number in refused:
        assert (await submitted(hub, CALL | {"key": f"crowd-{number}"})).status == 202
    assert set(begun.values()) == {1}
    assert len(begun) == 400


async def test_an_unknown_operation_is_404_everywhere(hub: TaskHubStage) -> None:
    for function in (get_operation, cancel_operation, retry_operation_now):
        assert (await call(function, hub.binding, operation_id="op-unknown")).status == 404


async def test_a_waiting_operation_can_be_retried_now(hub: TaskHubStage) -> None:
    hub.answer = failing(1)
    operation_id = (await submitted(hub)).body["operation_id"]
    await until(hub, operation_id, "waiting_retry")
    assert (await call(retry_operation_now, hub.binding, operation_id=operation_id)).status == 202
    assert (await until(hub, operation_id, "succeeded"))["attempt_count"] == 2


async def test_a_waiting_operation_can_be_cancelled(hub: TaskHubStage) -> None:
    hub.answer = failing(9)
    operation_id = (await submitted(hub)).body["operation_id"]
    await until(hub, operation_id, "waiting_retry")
    assert (await call(cancel_operation, hub.binding, operation_id=operation_id)).status == 202
    await until(hub, operation_id, "cancelled")


@pytest.mark.parametrize("function", [cancel_operation, retry_operation_now])
async def test_a_finished_operation_takes_no_orders(hub: TaskHubStage, function: Any) -> None:
    operation_id = (await submitted(hub, Prefer="wait=20")).body["operation_id"]
    answer = await call(function, hub.binding, operation_id=operation_id)
    assert answer.status == 409
    assert "succeeded" in answer.body["detail"]


@pytest.mark.usefixtures("own_tables")
async def test_a_list_of_one_leads_to_the_next(hub: TaskHubStage) -> None:
    ids = [
        (await submitted(hub, CALL | {"key": key}, Prefer="wait=20")).body["operation_id"] for key in "abc"
    ]
    seen, params = [], {"limit": "1"}
    while True:
        page = (await call(list_operations, hub.binding, params=params)).body
        seen += [item["operation_id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
    assert seen == ids[::-1]


@pytest.mark.usefixtures("own_tables")
async def test_a_key_and_a_word_of_the_last_error_find_an_operation(hub: TaskHubStage) -> None:
    good = (await submitted(hub, CALL | {"correlation_id": "order-7"}, Prefer="wait=20")).body
    hub.answer = failing(9)
    bad = (await submitted(hub, CALL | {"key": "evt-2", "order_key": "lane-7", "priority": "low"})).body
    await until(hub, bad["operation_id"], "waiting_retry")
    for params, wanted in (
        ({"key": "evt-1"}, [good]),
        ({"key": "evt"}, []),
        ({"q": "evt-2"}, [bad]),
        ({"q": "EVT"}, [bad, good]),
        ({"q": "order-7"}, [good]),
        ({"correlation_id": "order-7"}, [good]),
        ({"order_key": "lane-7"}, [bad]),
        ({"debounce_key": "lane-7"}, []),
        ({"priority": "low"}, [bad]),
        ({"priority": "normal"}, [good]),
        ({"q": "no"}, [bad]),
        ({"q": bad["operation_id"]}, [bad]),
        ({"source": "http"}, [bad, good]),
        ({"source": "queue"}, []),
    ):
        page = (await call(list_operations, hub.binding, params=params)).body
        found = [item["operation_id"] for item in page["items"]]
        assert (found, page["next_cursor"]) == ([one["operation_id"] for one in wanted], None), params


async def test_a_cursor_from_elsewhere_is_a_mistake(hub: TaskHubStage) -> None:
    answer = await call(list_operations, hub.binding, params={"cursor": "x"})
    assert (answer.status, answer.body["errors"][0]["pointer"]) == (400, "/cursor")


@pytest.mark.usefixtures("own_tables")
async def test_an_operation_shows_its_request_without_credentials_and_lists_leave_it_out(
    hub: TaskHubStage,
) -> None:
    headers = {"X-Api-Key": "c2VjcmV0", "Accept": "text/plain"}
    body = CALL | {"request": CALL["request"] | {"headers": headers}}  # type: ignore[operator] # a dict
    operation_id = (await submitted(hub, body, Prefer="wait=20")).body["operation_id"]
    shown = (await call(get_operation, hub.binding, operation_id=operation_id)).body
    assert shown["request"] == {
        "method": "POST",
        "path": "/charges",
        "query": {},
        "headers": {"x-api-key": "***", "accept": "text/plain"},
        "json": {"amount": 5},
    }
    (listed,) = (await call(list_operations, hub.binding)).body["items"]
    assert listed == {name: value for name, value in shown.items() if name != "request"}


@pytest.mark.usefixtures("own_tables")
async def test_a_traced_operation_shows_its_trace_and_where_it_is_looked_at(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    traced = await submitted(hub, traceparent=f"00-{trace_id}-b7ad6b7169203331-01", Prefer="wait=20")
    assert (traced.body["trace_id"], "trace_url" in traced.body) == (trace_id, False)
    monkeypatch.setenv("TRACE_URL", "https://traces.example.com/{trace_id}?x=1")
    app_settings.cache_clear()
    shown = (await call(get_operation, hub.binding, operation_id=traced.body["operation_id"])).body
    app_settings.cache_clear()
    assert shown["trace_url"] == f"https://traces.example.com/{trace_id}?x=1"
    (listed,) = (await call(list_operations, hub.binding)).body["items"]
    assert listed["trace_id"] == trace_id
    assert listed.keys() <= ListedOperation.model_fields.keys()
    untraced = await submitted(hub, CALL | {"key": "evt-2"}, Prefer="wait=20")
    assert "trace_id" not in untraced.body
