import json
from datetime import datetime, timedelta
from typing import Any

import azure.functions as func
import pytest

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.features.retention.removal import list_of
from durable_retry.features.retention.walks import remove_of_list
from durable_retry.features.workflows import routes as workflows
from durable_retry.features.workflows.names import SAGA as SAGA_LIST
from durable_retry.hub import instance_lists
from durable_retry.hub.instance_lists import note_created
from durable_retry.hub.task_hub import TaskHub
from durable_retry.runtime import clock
from durable_retry.storage.tables import rows_between
from durable_retry.upkeep.removal import Past
from durable_retry_console.bulk import routes as bulk
from durable_retry_console.bulk.actions import list_bulk_actions
from durable_retry_console.bulk.document import BulkItem, ItemOutcome
from durable_retry_console.bulk.names import BULK_ACTION
from durable_retry_console.bulk.store import keep_items
from scripts.processes import free_port
from tests.support.hub import TaskHubStage, binding_for

pytestmark = pytest.mark.usefixtures("own_tables")

OPERATION = {"dependency": "payments", "request": {"method": "POST", "path": "/charges"}}
BATCH = {"items": [OPERATION]}
SAGA = {"steps": [{"name": "one", "operation": OPERATION}]}
REPLAY: dict[str, Any] = {"action": "replay", "filter": {}}
KINDS = [
    (workflows.submit_batch, workflows.list_all_batches, BATCH, "batch_id"),
    (workflows.submit_saga, workflows.list_all_sagas, SAGA, "saga_id"),
    (bulk.start_action_on_many, bulk.list_actions_on_many, REPLAY, "action_id"),
]


async def call(route: Any, hub: TaskHub, body: Any = None, key: str = "", **params: str) -> Any:
    request = func.HttpRequest(
        "POST",
        "http://localhost/api/x",
        headers={"Idempotency-Key": key} if key else {},
        params=params,
        body=b"" if body is None else json.dumps(body).encode(),
    )
    answer = await route(request, hub, {})
    assert answer.status_code < 300, answer.get_body()
    return json.loads(answer.get_body())


@pytest.mark.parametrize(("submit", "show", "body", "name"), KINDS, ids=["batches", "sagas", "bulk actions"])
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


@pytest.mark.parametrize(("submit", "show", "body", "name"), KINDS[1:], ids=["sagas", "bulk actions"])
async def test_one_whose_history_was_purged_is_not_shown_and_upkeep_removes_it(
    hub: TaskHubStage, submit: Any, show: Any, body: Any, name: str
) -> None:
    kept_id = (await call(submit, hub.binding, body))[name]
    instance_id = (await call(submit, hub.binding, body))[name]
    client = await hub.binding.client()
    await client.terminate_orchestration(instance_id)
    await client.wait_for_orchestration_completion(instance_id, timeout=60)
    await client.purge_orchestration(instance_id)
    await keep_items(instance_id, [("1", BulkItem(id="dl-1", outcome=ItemOutcome.DONE))])

    assert [each[name] for each in (await call(show, hub.binding))["items"]] == [kept_id]
    kind = SAGA_LIST if name == "saga_id" else BULK_ACTION
    assert await removed(hub.binding, kind, clock.now()) == 1
    assert [
        row["RowKey"].partition("-")[2] for row in (await rows_between(instance_lists.TABLE, kind)).rows
    ] == [kept_id]
    assert (await rows_between(instance_lists.TABLE, instance_id)).rows == []


async def test_upkeep_leaves_entries_that_are_young(hub: TaskHubStage) -> None:
    await note_created(BULK_ACTION, "bulk-1", to_rfc3339(clock.now()))
    assert await removed(hub.binding, BULK_ACTION, clock.now() - timedelta(hours=1)) == 0


async def removed(hub: TaskHub, kind: str, created_before: datetime) -> int:
    past = Past(hub=hub, now=clock.now(), before=created_before)
    count, following = await remove_of_list(list_of(kind), past)
    assert following == ""
    return count


async def test_a_repeated_entry_is_one() -> None:
    for _ in range(2):
        await note_created(BULK_ACTION, "bulk-1", "2026-11-21T09:00:00Z")

    page = await list_bulk_actions(binding_for(free_port()), 5, None)
    assert [each.action_id for each in page.items] == ["bulk-1"]
    assert page.next_cursor is None


@pytest.mark.parametrize(
    ("route", "kind", "instance_id", "name"),
    [
        (workflows.list_all_sagas, SAGA_LIST, "saga-away", "saga_id"),
        (bulk.list_actions_on_many, BULK_ACTION, "bulk-away", "action_id"),
    ],
)
async def test_a_list_is_shown_while_the_task_hub_is_away(
    route: Any, kind: str, instance_id: str, name: str
) -> None:
    """What cannot be known is marked."""
    await note_created(kind, instance_id, "2026-11-21T09:00:00Z")
    answer = await call(route, binding_for(free_port()))
    (shown,) = (each for each in answer["items"] if each[name] == instance_id)
    assert shown["created_at"].startswith("2026-11-21T09:00:00")
    assert shown["unreadable"].endswith("the task hub answered UNAVAILABLE")
