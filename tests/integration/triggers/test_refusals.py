from typing import Any

import pytest

from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import using
from tests.integration.triggers.conftest import DEPENDENCIES, App
from tests.support.hub import TaskHubStage

CALL = {"dependency": "payments", "request": {"method": "POST", "path": "/"}}
MONTH = {"from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"}


def step(name: str, **operation: Any) -> dict[str, Any]:
    return {"name": name, "operation": CALL | operation}


QUERIES = [
    ("list_operations", {"limit": "0", "status": "lost", "x": "1"}, {"/limit", "/status", "/x"}),
    (
        "get_dead_letters",
        {"status": "gone", "limit": "0", "cursor": "x", "reason": "y", "what": "1"},
        {"/status", "/limit", "/reason", "/what", "/cursor"},
    ),
    ("get_dead_letters", {"cursor": "x"}, {"/cursor"}),
    ("list_order_lanes", {"cursor": "0"}, {"/cursor"}),
    ("get_metrics", {"dependency": "nobody", **MONTH}, {"/from", "/dependency"}),
    ("get_metrics", {"since": "1h", "to": "today"}, {"/since", "/to"}),
]

BODIES = [
    ("open_circuit", {}, {"/reason"}),
    ("open_circuit", {"reason": " "}, {"/reason"}),
    ("open_circuit", {"reason": "x", "for_seconds": 0}, {"/for_seconds"}),
    ("open_circuit", {"reason": "x", "until": "noon"}, {"/until"}),
    ("submit_batch", {"items": []}, {"/items"}),
    ("submit_batch", {"items": [{}] * 1_001}, {"/items"}),
    ("submit_batch", {"items": [{}], "max_concurrency": 0}, {"/max_concurrency"}),
    ("submit_saga", {"steps": []}, {"/steps"}),
    ("submit_saga", {"steps": [step("a"), step("a")]}, {"/steps/1/name", "/steps/1/operation/key"}),
    (
        "submit_saga",
        {
            "steps": [
                step("a"),
                step("b", dependency="nobody") | {"compensation": CALL | {"request": {"method": "BREW"}}},
            ]
        },
        {"/steps/1/operation/dependency", "/steps/1/compensation/request/method"},
    ),
    (
        "submit_saga",
        {
            "steps": [
                step("a", request={"method": "POST", "json": {"id": {"$result": "b#/json/id"}}}),
                step("b", dependency="nobody"),
            ]
        },
        {"/steps/0/operation/request/json/id", "/steps/1/operation/dependency"},
    ),
]


def named(value: Any) -> str:
    """Name a case by its route and its pointers."""
    if isinstance(value, set):
        return " ".join(sorted(value)) or "all of it"
    return value if isinstance(value, str) else ""


@pytest.fixture
def app(functions: dict[str, Any]) -> App:
    return App(functions, {"dependency": "payments"})


@pytest.mark.parametrize(("route", "query", "pointers"), QUERIES, ids=named)
async def test_every_mistake_of_a_query_is_refused_with_its_pointer(
    app: App, route: str, query: dict[str, str], pointers: set[str]
) -> None:
    with using(parse_config(DEPENDENCIES, {})):
        problem = await app.document(route, **query)
    assert (problem["status"], {error["pointer"] for error in problem["errors"]}) == (400, pointers)


@pytest.mark.parametrize(("route", "body", "pointers"), BODIES, ids=named)
async def test_every_mistake_of_a_body_is_refused_with_its_pointer(
    app: App, route: str, body: dict[str, Any], pointers: set[str]
) -> None:
    app.bodies = {route: body}
    with using(parse_config(DEPENDENCIES, {})):
        problem = await app.document(route)
    assert (problem["status"], {error["pointer"] for error in problem["errors"]}) == (400, pointers)


@pytest.mark.usefixtures("own_tables")
async def test_what_is_not_there_is_not_found(hub: TaskHubStage, functions: dict[str, Any]) -> None:
    ids = {"batch_id": "batch-none", "saga_id": "saga-none", "dead_letter_id": "dl-0", "action_id": "bulk-0"}
    ids |= {"event_id": "op-unknown.1", "dependency": "nobody"}
    bodies = {"open_circuit": {"reason": "x"}, "restart_failed_saga": {}, "replay_one_dead_letter": {}}
    routes = {"get_batch", "get_saga", "restart_failed_saga", "get_dead_letter", "replay_one_dead_letter"}
    routes |= {"get_action_on_many", "get_event", "get_circuit", "open_circuit"}
    answers = await App(functions, ids, bodies, hub.binding).answers(routes)
    assert {status for status, _ in answers.values()} == {404}
