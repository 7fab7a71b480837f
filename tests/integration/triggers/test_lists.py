"""Lists of batches, sagas and bulk replays: the newest first, a page at a time."""

import json
from datetime import timedelta
from typing import Any

import azure.functions as func
import pytest

from durable_retry import clock
from durable_retry.stores import workflows as workflow_lists
from durable_retry.stores.task_hub import client_for
from durable_retry.stores.workflows import list_created, note_created
from durable_retry.triggers.http import replays, workflows
from tests.support.hub import TaskHubStage
from tests.support.tables import use_own_tables

pytestmark = pytest.mark.usefixtures("storage")

OPERATION = {"dependency": "payments", "request": {"method": "POST", "path": "/charges"}}
BATCH = {"items": [OPERATION]}
SAGA = {"steps": [{"name": "one", "operation": OPERATION}]}
REPLAY: dict[str, Any] = {"filter": {}}
KINDS = [
    (workflows.submit_batch, workflows.list_all_batches, BATCH, "batch_id"),
    (workflows.submit_saga, workflows.list_all_sagas, SAGA, "saga_id"),
    (replays.start_replay_of_many, replays.list_replays_of_many, REPLAY, "replay_id"),
]


@pytest.fixture(autouse=True)
def tables_of_its_own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_own_tables(request.node.name, monkeypatch)


async def call(route: Any, hub: str, body: Any = None, key: str = "", **params: str) -> Any:
    request = func.HttpRequest(
        "POST",
        "http://localhost/api/x",
        headers={"Idempotency-Key": key} if key else {},
        params=params,
        body=b"" if body is None else json.dumps(body).encode(),
    )
    given = (request,) if route is workflows.list_all_batches else (request, hub)
    answer = await route(*given)
    assert answer.status_code < 300, answer.get_body()
    return json.loads(answer.get_body())


@pytest.mark.parametrize(("submit", "show", "body", "name"), KINDS, ids=["batches", "sagas", "replays"])
async def test_the_newest_is_first_and_a_cursor_leads_on(
    hub: TaskHubStage, submit: Any, show: Any, body: Any, name: str
) -> None:
    ids = [(await call(submit, hub.binding, body))[name] for _ in range(3)]
    first = await call(show, hub.binding, limit="2")
    rest = await call(show, hub.binding, limit="2", cursor=first["next_cursor"])
    assert [each[name] for each in first["items"] + rest["items"]] == ids[::-1]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize(("submit", "show", "body", "name"), KINDS[:2], ids=["batches", "sagas"])
async def test_one_that_is_submitted_again_is_listed_once(
    hub: TaskHubStage, submit: Any, show: Any, body: Any, name: str
) -> None:
    ids = {(await call(submit, hub.binding, body, key="k"))[name] for _ in range(2)}
    assert [each[name] for each in (await call(show, hub.binding))["items"]] == list(ids)


async def test_a_list_of_batches_has_no_items(hub: TaskHubStage) -> None:
    await call(workflows.submit_batch, hub.binding, BATCH)
    (batch,) = (await call(workflows.list_all_batches, hub.binding))["items"]
    assert "items" not in batch
    assert batch["counts"]["total"] == 1


async def test_a_saga_whose_history_was_purged_leaves_the_list_after_an_hour(hub: TaskHubStage) -> None:
    saga_id = (await call(workflows.submit_saga, hub.binding, SAGA))["saga_id"]
    client = await client_for(hub.binding)
    await client.terminate_orchestration(saga_id)
    await client.wait_for_orchestration_completion(saga_id, timeout=20)
    await client.purge_orchestration(saga_id)

    async def gone(_saga_id: str) -> None:
        return None

    async def there(found_id: str) -> dict[str, Any]:
        return {"saga_id": found_id}

    assert (await call(workflows.list_all_sagas, hub.binding))["items"] == []
    listed = await list_created(workflow_lists.SAGA, there, limit=5, cursor=None, now=clock.now())
    assert listed == ([{"saga_id": saga_id}], None)
    later = clock.now() + timedelta(hours=2)
    await list_created(workflow_lists.SAGA, gone, limit=5, cursor=None, now=later)
    assert await list_created(workflow_lists.SAGA, there, limit=5, cursor=None, now=later) == ([], None)


async def test_a_repeated_entry_is_one() -> None:
    for _ in range(2):
        await note_created(workflow_lists.REPLAY, "replay-1", "2026-11-21T09:00:00Z")

    async def there(found_id: str) -> dict[str, Any]:
        return {"id": found_id}

    listed = await list_created(workflow_lists.REPLAY, there, limit=5, cursor=None, now=clock.now())
    assert listed == ([{"id": "replay-1"}], None)
