"""What each read route asks of the storage account and the task hub, whatever is stored.

The table of docs/deploying.md is measured here: a route that asks for more fails, also when ten times as much
is stored.
"""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, time
from typing import Any, Final

import pytest

from durable_retry.base.names import Category
from durable_retry.dead_letters.records import keep_operation
from durable_retry.hub.task_hub import TaskHub, close_clients
from durable_retry.operations.actions import submit
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.runtime import clock, sharing
from durable_retry.settings.configuration import using
from durable_retry_console.bulk.actions import start_bulk_action
from durable_retry_console.bulk.bodies import BulkActionBody
from durable_retry_console.bulk.document import BulkItem, ItemOutcome
from durable_retry_console.bulk.store import keep_items, key_of_item
from durable_retry_console.index.notes import write_noted
from scripts.processes import ROOT
from tests.integration.triggers.conftest import DEPENDENCIES, App
from tests.support.asked import Asked, counting
from tests.support.azurite import new_account, use_account
from tests.support.builders import an_entry, an_operation, failing
from tests.support.hub import task_hub_stage

pytestmark = pytest.mark.long

FEW, MANY = 25, 100
DOCUMENT: Final = ROOT / "docs" / "deploying.md"
ROW = re.compile(r"^\| `GET /api/([^`]+)` \| (\d+) \| (\d+) \|", re.MULTILINE)

PATHS: Final = {
    "operations?limit=20": ("list_operations", {"limit": "20"}),
    "operations?status=dead_lettered&limit=20": (
        "list_operations",
        {"status": "dead_lettered", "limit": "20"},
    ),
    "operations?key=K": ("list_operations", {"key": "few-1"}),
    "operations?correlation_id=C": ("list_operations", {"correlation_id": "order-1"}),
    "operations/{operation_id}": ("get_operation", {}),
    "search?q=K": ("search_everything", {"q": "few-1"}),
    "batches?limit=20": ("list_all_batches", {"limit": "20"}),
    "sagas?limit=20": ("list_all_sagas", {"limit": "20"}),
    "operations/summary": ("summarize_operations", {}),
    "overview": ("get_overview", {}),
    "circuits": ("list_circuits", {}),
    "circuits/{dependency}": ("get_circuit", {}),
    "metrics": ("get_metrics", {}),
    "dead-letters?limit=20": ("get_dead_letters", {"limit": "20"}),
    "dead-letters/count": ("count_dead_letters_that_match", {}),
    "dead-letters/groups": ("get_dead_letter_groups", {}),
    "dead-letters/summary": ("get_dead_letter_summary", {}),
    "dead-letters/{dead_letter_id}": ("get_dead_letter", {}),
    "bulk-actions?limit=20": ("list_actions_on_many", {"limit": "20"}),
    "bulk-actions/{action_id}": ("get_action_on_many", {}),
    "bulk-actions/{action_id}/items?limit=20": ("list_items_of_action", {"limit": "20"}),
    "outbox?limit=20": ("list_outbox", {"limit": "20"}),
    "alerts": ("list_alerts", {}),
    "activity?limit=20": ("get_activity", {"limit": "20"}),
    "health": ("get_health", {}),
}


@pytest.fixture
async def app(functions: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    use_account(monkeypatch, new_account().connection_string)
    # Metrics have a partition for each day, and the index one for some seconds: at noon there is one of each.
    noon = datetime.combine(datetime.now(UTC), time(12), UTC)
    with (
        task_hub_stage() as stage,
        using(parse_config(DEPENDENCIES, {})),
        clock.reading(lambda: noon),
    ):
        stage.answer = failing(1, Category.MALFORMED, 422)
        yield App(functions, hub=stage.binding)
        await close_clients()


async def store(hub: TaskHub, name: str, count: int) -> None:
    """Store as many operations, and let each end as a dead letter, as its status says then."""
    for number in range(count):
        operation_id, error = f"op-{name}-{number}", f"no such amount {number}"
        shown: dict[str, Any] = {"key": f"{name}-{number}", "correlation_id": f"order-{name}-{number}"}
        shown |= {"source": "http", "created_at": clock.now()}
        operation = an_operation(operation_id=operation_id, **shown)
        await submit(hub, operation)
        await keep_operation(an_entry(operation_id, error=error, **shown), clock.now())
    client = await hub.client()
    for number in range(count):
        await client.wait_for_orchestration_completion(f"op-{name}-{number}", timeout=30)
    await write_noted()


async def started_action(hub: TaskHub) -> str:
    body = BulkActionBody(action="archive", ids=["dl-none"])
    action_id = await start_bulk_action(hub, body, None, matched=1, now=clock.now(), by=None)
    done = ItemOutcome.DONE
    items = [BulkItem(id="op", outcome=done, operation_id=f"op-few-{number}") for number in range(FEW)]
    now = clock.now()
    await keep_items(action_id, [(key_of_item(now, place), item) for place, item in enumerate(items)])
    return action_id


async def costs(app: App) -> dict[str, tuple[int, int]]:
    """Return the requests to storage and the calls of the hub, by what is asked for."""
    (letter,) = (await app.document("get_dead_letters", limit="1"))["items"]
    app.parameters = {
        "action_id": await started_action(app.hub),
        "operation_id": "op-few-1",
        "dead_letter_id": letter["id"],
        "dependency": "payments",
    }
    found = {}
    for path, (function, params) in PATHS.items():
        # The least of three: what is read once per process, or written beside it, is not the route's.
        rounds = [await asked_by(app, function, params) for _ in range(3)]
        found[path] = (min(each.storage for each in rounds), min(each.hub for each in rounds))
    return found


async def asked_by(app: App, function: str, params: dict[str, str]) -> Asked:
    sharing._shared.values.clear()  # As if nobody had asked a moment ago.
    with counting() as asked:
        document = await app.document(function, **params)
    assert "errors" not in document, document
    return asked


async def test_a_route_costs_what_the_document_says_however_much_is_stored(app: App) -> None:
    documented = {path: (int(storage), int(hub)) for path, storage, hub in ROW.findall(DOCUMENT.read_text())}
    assert documented.keys() == PATHS.keys()
    for name, count in (("few", FEW), ("many", MANY)):
        await store(app.hub, name, count)
        found = await costs(app)
        dearer = {
            path: (found[path], most)
            for path, most in documented.items()
            if any(asked > limit for asked, limit in zip(found[path], most, strict=True))
        }
        assert dearer == {}, name
