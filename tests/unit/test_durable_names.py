"""Names that running orchestrations, callers and deployed bindings hold on to: changing one breaks them."""

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from durable_retry.attempt import commits, markers, results
from durable_retry.base import names
from durable_retry.dead_letters import index as dead_letter_keys
from durable_retry.dead_letters import records as dead_letters
from durable_retry.features.handlers import records
from durable_retry.features.outbox.names import outbox_instance
from durable_retry.features.workflows import batch_store as workflows
from durable_retry.routing import table
from durable_retry.storage import rounds
from durable_retry_console.alerts import store as alerts
from durable_retry_console.bulk import names as bulk_names

HTTP = {
    "api_operations": "operations/{*rest}",
    "api_batches": "batches/{*rest}",
    "api_sagas": "sagas/{*rest}",
    "api_dependencies": "dependencies",
    "api_handlers": "handlers",
    "api_policies": "policies/{*rest}",
    "api_circuits": "circuits/{*rest}",
    "api_hold": "hold/{*rest}",
    "api_order_lanes": "order-lanes/{*rest}",
    "api_dead_letters": "dead-letters/{*rest}",
    "api_outbox": "outbox/{*rest}",
    "api_health": "health",
    "api_diagnoses": "diagnoses/{*rest}",
    "api_histories": "histories",
    "api_setup": "setup",
    "api_openapi_json": "openapi.json",
    "api_overview": "overview",
    "api_search": "search",
    "api_metrics": "metrics",
    "api_bulk_actions": "bulk-actions/{*rest}",
    "api_alerts": "alerts/{*rest}",
    "api_activity": "activity",
    "api_dashboard": "dashboard/{*rest}",
}
"""The functions of the host. Keys can be made for one of them."""

ROUTES = {
    "submit_operation": ("POST", "operations"),
    "list_operations": ("GET", "operations"),
    "summarize_operations": ("GET", "operations/summary"),
    "get_operation": ("GET", "operations/{operation_id}"),
    "cancel_operation": ("POST", "operations/{operation_id}/cancel"),
    "retry_operation_now": ("POST", "operations/{operation_id}/retry-now"),
    "try_operation": ("POST", "operations/{operation_id}/try"),
    "preview_policy": ("POST", "policies/preview"),
    "list_dependencies": ("GET", "dependencies"),
    "list_handlers": ("GET", "handlers"),
    "get_health": ("GET", "health"),
    "start_a_diagnosis": ("POST", "diagnoses"),
    "get_diagnosis": ("GET", "diagnoses/{diagnosis_id}"),
    "list_histories": ("GET", "histories"),
    "set_up_storage": ("POST", "setup"),
    "get_overview": ("GET", "overview"),
    "get_openapi": ("GET", "openapi.json"),
    "get_dashboard": ("GET", "dashboard"),
    "get_dashboard_file": ("GET", "dashboard/{*path}"),
    "list_circuits": ("GET", "circuits"),
    "get_circuit": ("GET", "circuits/{dependency}"),
    "list_order_lanes": ("GET", "order-lanes"),
    "get_order_lane": ("GET", "order-lanes/{order_key}"),
    "get_metrics": ("GET", "metrics"),
    "open_circuit": ("POST", "circuits/{dependency}/open"),
    "close_circuit": ("POST", "circuits/{dependency}/close"),
    "disable_circuit": ("POST", "circuits/{dependency}/disable"),
    "get_hold": ("GET", "hold"),
    "hold_all": ("POST", "hold"),
    "thaw_hold": ("POST", "hold/thaw"),
    "reset_circuit": ("POST", "circuits/{dependency}/reset"),
    "get_dead_letters": ("GET", "dead-letters"),
    "get_dead_letter_groups": ("GET", "dead-letters/groups"),
    "count_dead_letters_that_match": ("GET", "dead-letters/count"),
    "get_dead_letter_summary": ("GET", "dead-letters/summary"),
    "get_dead_letter": ("GET", "dead-letters/{dead_letter_id}"),
    "replay_one_dead_letter": ("POST", "dead-letters/{dead_letter_id}/replay"),
    "archive_dead_letter": ("POST", "dead-letters/{dead_letter_id}/archive"),
    "restore_dead_letter": ("POST", "dead-letters/{dead_letter_id}/restore"),
    "note_dead_letter": ("POST", "dead-letters/{dead_letter_id}/notes"),
    "start_action_on_many": ("POST", "bulk-actions"),
    "list_actions_on_many": ("GET", "bulk-actions"),
    "get_action_on_many": ("GET", "bulk-actions/{action_id}"),
    "cancel_action_on_many": ("DELETE", "bulk-actions/{action_id}"),
    "list_alerts": ("GET", "alerts"),
    "list_outbox": ("GET", "outbox"),
    "get_event": ("GET", "outbox/{event_id}"),
    "resend_event": ("POST", "outbox/{event_id}/resend"),
    "submit_batch": ("POST", "batches"),
    "list_all_batches": ("GET", "batches"),
    "get_batch": ("GET", "batches/{batch_id}"),
    "submit_saga": ("POST", "sagas"),
    "list_all_sagas": ("GET", "sagas"),
    "get_saga": ("GET", "sagas/{saga_id}"),
}

DURABLE = {
    "operation": "orchestrationTrigger",
    "attempt": "activityTrigger",
    "commit": "activityTrigger",
    "dead_letter": "activityTrigger",
    "idempotency_record": "entityTrigger",
    "circuit_breaker": "entityTrigger",
    "debounce": "entityTrigger",
    "release_waiting": "orchestrationTrigger",
    "wake_waiting": "activityTrigger",
    "freeze": "orchestrationTrigger",
    "keep_frozen": "activityTrigger",
    "count_frozen": "activityTrigger",
    "wake_frozen": "activityTrigger",
    "bulk_action": "orchestrationTrigger",
    "bulk_page": "activityTrigger",
    "bulk_batch": "activityTrigger",
    "bulk_ends": "activityTrigger",
    "outbox": "orchestrationTrigger",
    "outbox_pending": "activityTrigger",
    "publish": "activityTrigger",
    "outbox_give_up": "activityTrigger",
    "batch": "orchestrationTrigger",
    "batch_step": "activityTrigger",
    "batch_close": "activityTrigger",
    "saga": "orchestrationTrigger",
    "submit": "activityTrigger",
    "begin_restart": "activityTrigger",
    "end_restart": "activityTrigger",
    "call_operation": "orchestrationTrigger",
    "start_call": "activityTrigger",
    "look_at_call": "activityTrigger",
    "retention": "orchestrationTrigger",
    "diagnosis": "orchestrationTrigger",
    "diagnose": "activityTrigger",
    "queue_check": "orchestrationTrigger",
    "pass_queue": "activityTrigger",
    "order_lane": "entityTrigger",
    "pass_turn": "orchestrationTrigger",
    "call_next": "orchestrationTrigger",
    "look_at_lane": "activityTrigger",
    "remove_past": "activityTrigger",
    "watch": "timerTrigger",
    "maintenance": "timerTrigger",
    "record_cleaning": "timerTrigger",
}

QUEUES = {"operations_queue": "operations", "operations_poison": "operations-poison"}

SDK = {"BuiltIn__HttpActivity", "BuiltIn__HttpPollOrchestrator"}


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, dict[str, Any]]]:
    """The trigger of each function of the app, by the function's name."""
    monkeypatch.setenv("FLAKY_TARGET_URL", "http://127.0.0.1:9")
    sys.modules.pop("function_app", None)
    app = importlib.import_module("function_app").app
    yield {
        function.get_function_name(): function.get_trigger().get_dict_repr()
        for function in app.get_functions()
        if function.get_function_name() not in SDK
    }
    sys.modules.pop("function_app", None)


def test_every_http_function_is_where_the_contract_says(bindings: dict[str, dict[str, Any]]) -> None:
    found = {name: trigger["route"] for name, trigger in bindings.items() if trigger["type"] == "httpTrigger"}
    assert {name: found.get(name) for name in HTTP} == HTTP


def test_every_route_is_where_the_contract_says() -> None:
    found = {route.function: (route.method, route.path) for route in table()}
    assert {name: found.get(name) for name in ROUTES} == ROUTES


def test_orchestrators_activities_and_entities_keep_their_names(
    bindings: dict[str, dict[str, Any]],
) -> None:
    found = {name: trigger["type"] for name, trigger in bindings.items()}
    assert {name: found.get(name) for name in DURABLE} == DURABLE


def test_queues_keep_their_names(bindings: dict[str, dict[str, Any]]) -> None:
    found = {
        name: trigger["queueName"] for name, trigger in bindings.items() if trigger["type"] == "queueTrigger"
    }
    assert {name: found.get(name) for name in QUEUES} == QUEUES


def test_only_health_the_openapi_document_and_the_dashboards_files_answer_without_a_key(
    bindings: dict[str, dict[str, Any]],
) -> None:
    open_to_all = {
        name
        for name, trigger in bindings.items()
        if trigger["type"] == "httpTrigger"
        and trigger.get("authLevel") is not None
        and trigger["authLevel"].value == "anonymous"
    }
    assert open_to_all & HTTP.keys() == {"api_health", "api_openapi_json", "api_dashboard"}


def test_events_and_tables_keep_their_names() -> None:
    assert (names.CANCEL_EVENT, names.RETRY_NOW_EVENT) == ("cancel", "retry_now")
    assert names.CIRCUIT_EVENT == "circuit_changed"
    assert (markers.TABLE, records.TABLE) == ("AttemptMarkers", "HandlerSteps")
    assert (results.TABLE_PREFIX, results.STORED) == ("OperationResults", "stored")
    assert (dead_letters.TABLE, dead_letter_keys.TABLE) == ("DeadLetters", "DeadLetterIndex")
    assert (commits.TABLE, commits.INDEX_TABLE) == ("Commits", "CommitIndex")
    assert rounds.TABLE == "Upkeep"
    assert (workflows.TABLE, names.ENDED_EVENT) == ("Batches", "operation_ended")
    assert outbox_instance("op-1") == "outbox-op-1"
    assert alerts.TABLE == "Alerts"
    assert (bulk_names.CANCEL_BULK_EVENT, bulk_names.RESUME_BULK_EVENT) == ("cancel_bulk", "resume_bulk")
