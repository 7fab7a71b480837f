"""Every route of the app, called while the parts that it needs are away."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from durable_retry.http.routes import AWAY
from durable_retry.hub.task_hub import close_clients
from durable_retry.routing import table
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import using
from durable_retry.storage import clients as storage_clients
from durable_retry.storage import queues
from scripts.processes import free_port
from tests.integration.triggers.conftest import DEPENDENCIES, App
from tests.support.azurite import use_account
from tests.support.hub import task_hub_stage

PARAMETERS: Final = {
    "operation_id": "op-unknown",
    "dead_letter_id": f"dl-{0:032x}",
    "event_id": "op-unknown.1",
    "batch_id": "batch-unknown",
    "saga_id": "saga-unknown",
    "action_id": f"bulk-{0:032x}",
    "diagnosis_id": f"diagnosis-{0:032x}",
    "dependency": "payments",
    "order_key": "customer-7",
    "group": f"g-{0:016x}",
}
OPERATION: Final = {"dependency": "payments", "request": {"method": "GET", "path": "/"}}
BODIES: Final[dict[str, Any]] = {
    "submit_operation": OPERATION,
    "enqueue_operation": OPERATION,
    "submit_batch": {"items": [OPERATION]},
    "submit_saga": {"steps": [{"name": "one", "operation": OPERATION}]},
    "start_action_on_many": {"action": "cancel", "filter": {}},
    "note_dead_letter": {"text": "seen"},
    "note_cause": {"text": "seen"},
    "pause_operation": {},
    "try_operation": {"reason": "why"},
    "restart_failed_saga": {},
    "hold_all": {"reason": "why"},
    "preview_policy": {"dependency": "payments"},
    **{f"{control}_circuit": {"reason": "why"} for control in ("open", "close", "disable", "reset")},
    **{f"{control}_dependency": {"reason": "why"} for control in ("pause", "resume")},
}
NEEDS_A_PART: Final = {route.function for route in table() if AWAY in route.problems}
NEEDS_STORAGE_ONLY: Final = {
    "get_dead_letters",
    "get_dead_letter_groups",
    "get_dead_letter_summary",
    "get_dead_letter",
    "archive_dead_letter",
    "restore_dead_letter",
    "note_dead_letter",
    "get_metrics",
    "list_outbox",
    "get_batch",
    "list_all_batches",
    "list_all_sagas",
    "list_actions_on_many",
    "enqueue_operation",
}


@pytest.fixture
async def app(functions: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    """The app with neither a task hub nor a storage account."""
    away = f"http://127.0.0.1:{free_port()}/account"
    connection = f"AccountName=account;AccountKey=a2V5;TableEndpoint={away};QueueEndpoint={away}"
    use_account(monkeypatch, connection)
    # What is away stays away: the client need not ask thrice.
    monkeypatch.setitem(storage_clients.CLIENT_OPTIONS, "retry_total", 0)
    monkeypatch.setitem(queues._CLIENT_OPTIONS, "retry_total", 0)
    with using(parse_config(DEPENDENCIES, {})):
        yield App(functions, PARAMETERS, BODIES)
        await close_clients()


async def test_every_route_says_503_when_a_part_that_it_needs_is_away(app: App) -> None:
    answers = await app.answers(NEEDS_A_PART)
    assert {name: status for name, (status, _) in answers.items() if status != 503} == {}


async def test_the_answer_names_the_storage_or_the_task_hub(app: App) -> None:
    answers = await app.answers(NEEDS_A_PART)
    storage_away = {name for name, (_, type_) in answers.items() if type_ == "/problems/storage-unavailable"}
    hub_away = {name for name, (_, type_) in answers.items() if type_ == "/problems/task-hub-unavailable"}
    assert storage_away >= NEEDS_STORAGE_ONLY
    assert storage_away | hub_away == NEEDS_A_PART


async def test_a_route_that_needs_no_part_answers_all_the_same(app: App) -> None:
    answers = await app.answers({"list_dependencies", "list_handlers", "preview_policy"})
    assert {status for status, _ in answers.values()} == {200}


async def test_the_overview_names_the_parts_that_are_away_and_shows_the_others(app: App) -> None:
    everything_away = await app.document("get_overview")
    assert everything_away["unavailable"].keys() == {
        "operations",
        "circuits",
        "dead_letters",
        "outbox",
        "metrics",
        "alerts",
    }
    assert everything_away["health"]["status"] == "unhealthy"
    with task_hub_stage() as stage:
        app.hub = stage.binding
        overview = await app.document("get_overview")
    assert overview["unavailable"].keys() == {"operations", "dead_letters", "outbox", "metrics", "alerts"}
    assert {overview[name] for name in overview["unavailable"]} == {None}
    assert "payments" in [circuit["dependency"] for circuit in overview["circuits"]]


async def test_with_a_task_hub_only_the_storage_is_missed(app: App) -> None:
    with task_hub_stage() as stage:
        app.hub = stage.binding
        answers = await app.answers({"get_operation", "get_saga", "submit_batch", "resend_event"})
    storage_away = (503, "/problems/storage-unavailable")
    not_found = (404, "about:blank")
    assert answers == {
        "get_operation": not_found,
        "get_saga": not_found,
        "submit_batch": storage_away,
        "resend_event": storage_away,
    }
