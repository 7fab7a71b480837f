import json
from typing import Any

import azure.functions as func
import pytest

from durable_retry.features.enqueue.routes import enqueue_operation
from durable_retry.intake.routes import submit_operation
from scripts.processes import free_port
from tests.integration.triggers.test_sources import CALL, EVENT, arrival, make
from tests.support.azurite import Storage
from tests.support.http import Answered, call
from tests.support.hub import TaskHubStage, binding_for
from tests.support.narrowing import existing

HEADERS = {"ce-specversion": "1.0", "ce-id": "e-1", "ce-source": "/shop", "ce-type": "order.placed"}


async def submitted(hub: TaskHubStage, body: Any, **headers: str) -> Answered:
    return await call(submit_operation, hub.binding, body, headers=headers)


async def enqueued(body: Any, headers: dict[str, str] | None = None) -> Answered:
    request = func.HttpRequest(
        "POST",
        "http://localhost:7071/api/operations/enqueue",
        headers=headers or {},
        body=json.dumps(body).encode(),
    )
    answer = await enqueue_operation(request, binding_for(free_port()), {})
    return Answered(answer.status_code, dict(answer.headers), json.loads(answer.get_body()))


async def test_an_event_by_http_is_what_it_is_by_any_source(hub: TaskHubStage) -> None:
    first = await submitted(hub, EVENT, **{"content-type": "application/cloudevents+json"})
    binary = await submitted(hub, CALL, **HEADERS)
    await make().accept(hub.binding, arrival(EVENT))
    assert (first.status, first.body["key"]) == (202, "/shop#e-1")
    assert binary.body["operation_id"] == first.body["operation_id"]
    assert binary.headers["Idempotent-Replayed"] == "true"


async def test_a_key_goes_before_the_events_name(hub: TaskHubStage) -> None:
    answer = await submitted(hub, EVENT, **{"Idempotency-Key": "mine"})
    assert answer.body["key"] == "mine"


async def test_an_event_brings_its_correlation_id(hub: TaskHubStage) -> None:
    answer = await submitted(hub, CALL, **HEADERS, **{"ce-correlationid": "order%2042"})
    instance = existing(await hub.binding.read_instance(answer.body["operation_id"]))
    assert instance.input["operation"]["correlation_id"] == "order 42"


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"id": ""}, "/id"),
        ({"source": None}, "/source"),
        ({"specversion": "2.0"}, "/specversion"),
        ({"data": {**CALL, "colour": "red"}}, "/data/colour"),
        ({"data": "{"}, "/data"),
        ({"data_base64": "e30="}, "/data_base64"),
        ({"data": None}, "/data"),
    ],
)
async def test_what_is_wrong_with_an_event_is_pointed_at(
    hub: TaskHubStage, changes: dict[str, Any], pointer: str
) -> None:
    answer = await submitted(hub, EVENT | changes)
    assert (answer.status, [error["pointer"] for error in answer.body["errors"]]) == (400, [pointer])


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("body", "headers"),
    [(CALL | {"key": "k"}, {}), (CALL, {"Idempotency-Key": "k"}), (EVENT, {}), (CALL, HEADERS), (CALL, {})],
)
async def test_what_is_put_on_the_queue_gets_the_name_of_the_answer(
    storage: Storage, body: Any, headers: dict[str, str]
) -> None:
    with storage.queue("operations") as queue:
        answer = await enqueued(body, headers)
        assert answer.status == 202, answer.body
        assert answer.body["status_url"].endswith(f"/api/operations/{answer.body['operation_id']}")
        message = existing(queue.receive_message())
        queue.delete_message(message)
    operation = make().operation_of(arrival(message.content.encode(), message.id))
    assert (operation.operation_id, operation.key) == (answer.body["operation_id"], answer.body["key"])


@pytest.mark.usefixtures("hub", "storage")
async def test_what_is_no_operation_is_not_put_on_the_queue() -> None:
    answer = await enqueued(CALL | {"dependency": "nobody"})
    assert (answer.status, answer.body["errors"][0]["pointer"]) == (400, "/dependency")
