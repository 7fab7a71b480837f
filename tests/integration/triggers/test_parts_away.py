"""Every route of the app, called while the parts that it needs are away."""

import asyncio
import importlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import azure.functions as func
import pytest

from durable_retry.engine.config import parse_config
from durable_retry.settings.configuration import using
from durable_retry.stores import queues, tables
from durable_retry.stores.task_hub import close_clients
from durable_retry.triggers.http.api import table
from durable_retry.triggers.http.routes import AWAY
from scripts.processes import free_port
from tests.integration.triggers.conftest import DEPENDENCIES
from tests.support.azurite import use_account
from tests.support.hub import binding_for, task_hub_stage

PARAMETERS: Final = {
    "operation_id": "op-unknown",
    "dead_letter_id": f"dl-{0:032x}",
    "event_id": "op-unknown.1",
    "batch_id": "batch-unknown",
    "saga_id": "saga-unknown",
    "replay_id": f"replay-{0:032x}",
    "silence_id": f"silence-{0:032x}",
    "dependency": "payments",
}
OPERATION: Final = {"dependency": "payments", "request": {"method": "GET", "path": "/"}}
BODIES: Final[dict[str, Any]] = {
    "submit_operation": OPERATION,
    "enqueue_operation": OPERATION,
    "submit_batch": {"items": [OPERATION]},
    "submit_saga": {"steps": [{"name": "one", "operation": OPERATION}]},
    "start_replay_of_many": {"filter": {}, "rate_per_second": 5},
    "note_dead_letter": {"text": "seen"},
    "preview_policy": {"dependency": "payments"},
    "silence_alerts": {"condition": "*", "for_minutes": 1, "reason": "why"},
    **{f"{control}_circuit": {"reason": "why"} for control in ("open", "close", "disable", "reset")},
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
    "list_replays_of_many",
    "enqueue_operation",
}


@dataclass
class App:
    """The HTTP functions of the app, and the task hub that they are given."""

    functions: dict[str, Any]
    hub: str = field(default_factory=lambda: binding_for(free_port()))

    async def answers(self, names: set[str]) -> dict[str, tuple[int, str]]:
        """Call some functions, and return the status and the kind of problem of each."""
        called = sorted(names)
        answers = await asyncio.gather(*(self._call(name) for name in called))
        return dict(zip(called, answers, strict=True))

    async def document(self, name: str) -> dict[str, Any]:
        """Call a function, and return the document that it answers."""
        document: dict[str, Any] = json.loads((await self._answer(name)).get_body())
        return document

    async def _call(self, name: str) -> tuple[int, str]:
        answer = await self._answer(name)
        return answer.status_code, json.loads(answer.get_body()).get("type", "")

    async def _answer(self, name: str) -> func.HttpResponse:
        trigger = self.functions[name].get_trigger().get_dict_repr()
        request = func.HttpRequest(
            trigger["methods"][0].value,
            f"http://localhost:7071/api/{trigger['route']}",
            route_params=PARAMETERS,
            body=json.dumps(BODIES[name]).encode() if name in BODIES else b"",
        )
        bindings = {each.name for each in self.functions[name].get_bindings()}
        given = {"hub": self.hub} if "hub" in bindings else {}
        answer: func.HttpResponse = await self.functions[name].get_user_function()(req=request, **given)
        return answer


@pytest.fixture(scope="module")
def functions() -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAKY_TARGET_URL", "http://127.0.0.1:9")
        sys.modules.pop("function_app", None)
        app = importlib.import_module("function_app").app
    listed = {each.get_function_name(): each for each in app.get_functions()}
    yield {name: each for name, each in listed.items() if each.get_trigger().type == "httpTrigger"}
    sys.modules.pop("function_app", None)


@pytest.fixture
async def app(functions: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    """The app with neither a task hub nor a storage account."""
    away = f"http://127.0.0.1:{free_port()}/account"
    connection = f"AccountName=account;AccountKey=a2V5;TableEndpoint={away};QueueEndpoint={away}"
    use_account(monkeypatch, connection)
    # What is away stays away: the client need not ask thrice.
    monkeypatch.setitem(tables._CLIENT_OPTIONS, "retry_total", 0)
    monkeypatch.setitem(queues._CLIENT_OPTIONS, "retry_total", 0)
    with using(parse_config(DEPENDENCIES, {})):
        yield App(functions)
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
    answers = await app.answers({"list_dependencies", "preview_policy"})
    assert {status for status, _ in answers.values()} == {200}


async def test_the_overview_names_the_parts_that_are_away_and_shows_the_others(app: App) -> None:
    everything_away = await app.document("get_overview")
    assert everything_away["unavailable"].keys() == {
        "operations",
        "circuits",
        "dead_letters",
        "outbox",
        "metrics",
    }
    assert everything_away["health"]["status"] == "unhealthy"
    with task_hub_stage() as stage:
        app.hub = stage.binding
        overview = await app.document("get_overview")
    assert overview["unavailable"].keys() == {"dead_letters", "outbox", "metrics"}
    assert [overview[name] for name in overview["unavailable"]] == [None, None, None]
    assert overview["operations"]["operations"] == 0
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
