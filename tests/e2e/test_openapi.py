"""The whole API, fuzzed by its own description: no answer that it does not describe, and none above 499."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from durable_retry.features.openapi.routes import described
from durable_retry.http.routes import Route
from durable_retry.routing import table
from tests.support.app import System
from tests.support.target import Target

type Operation = APIOperation[Any, Any, Any, Any]
type Case = schemathesis.Case[Any]

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
VALID, INVALID = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
EXAMPLES = 6
SETTINGS = Path(__file__).with_name("circuits.toml")
SEEDS = {
    "echoed": ("/echo", "flaky"),
    "waiting": ("/throttle/1?retry_after=60", "throttling"),
    "refused": ("/fail/9?status=400", "flaky"),
}


class Fuzzed:
    """An app with something of everything in it.

    Attributes:
        schemas: Its description as it is, and aimed at what is in it.
    """

    def __init__(self, system: System) -> None:
        self.system = system
        self.session = requests.Session()
        document = system.client.get("/api/openapi.json").json()
        documents = {"wild": document, "aimed": aimed(document, seeded(system))}
        self.schemas = {name: schemathesis.openapi.from_dict(each) for name, each in documents.items()}

    def operation(self, route: Route, aim: str) -> Operation:
        found: Operation = self.schemas[aim]["/api/" + route.path.replace("{*", "{")][route.method]
        return found


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory, target: Target) -> Iterator[Fuzzed]:
    """An app of its own: what is fuzzed into it is nobody else's."""
    folder = tmp_path_factory.mktemp("fuzzed")
    system = System(folder, target, DEPENDENCIES_FILE=str(SETTINGS))
    with system.running():
        fuzzed = Fuzzed(system)
        yield fuzzed
        fuzzed.session.close()


def seeded(system: System) -> dict[str, list[str]]:
    """Puts something of everything into the app; returns what path parameters can name."""
    event = {"type": "charged", "queue": "charge-events", "data": 1}
    ids = [
        system.accepted(f"seed-{name}", path, dependency=dependency, on_success=[event])
        for name, (path, dependency) in SEEDS.items()
    ]
    step = {"name": "charge", "operation": {"dependency": "flaky", "request": {"method": "GET"}}}
    batch = system.client.post("/api/batches", json={"items": [step["operation"], {}]}).json()
    saga = system.client.post("/api/sagas", json={"steps": [step]}).json()
    dead = system.until(ids[-1], "dead_lettered")["dead_letter"]
    asked = {"action": "replay", "filter": {"group": "none"}}
    replay = system.client.post("/api/bulk-actions", json=asked).json()
    asked = {"action": "retry_now", "ids": [ids[0], "op-unknown"]}
    action = system.client.post("/api/bulk-actions", json=asked).json()
    diagnosis = system.client.post("/api/diagnoses").json()
    succeeded = system.until(ids[0], "succeeded")
    return {
        "operation_id": ids,
        "batch_id": [batch["batch_id"]],
        "saga_id": [saga["saga_id"]],
        "dependency": ["flaky", "held"],
        "order_key": ["customer-7"],
        "dead_letter_id": [dead["id"]],
        "group": [system.client.get(f"/api/dead-letters/{dead['id']}").json()["group"]],
        "diagnosis_id": [diagnosis["diagnosis_id"]],
        "action_id": [replay["action_id"], action["action_id"]],
        "event_id": [succeeded["events"][0]["event_id"]],
        "path": ["app.js", "charts.css"],
    }


def aimed(document: dict[str, Any], known: dict[str, list[str]]) -> dict[str, Any]:
    """Narrows a description to what exists, so that fuzzing comes past the first look at a name.

    It is strict, too: an answer must have no field that is not described.
    """
    document = copy.deepcopy(document)
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    schemas["Name"] = {"enum": ["flaky", "held", "freed"]}
    schemas["RelativePath"] = {"enum": ["", "/echo", "/fail/1", "/fail/9", "/throttle/1"]}
    schemas["HeaderName"] = {"enum": ["x-one", "accept"]}
    schemas["HeaderValue"] = {"enum": ["a", ""]}
    schemas["Event"]["anyOf"] = [
        {"required": ["queue"], "properties": {"dependency": False, "path": False}},
        {"required": ["dependency", "path"], "properties": {"queue": False}},
    ]
    schemas["HttpCall"]["properties"] |= {"body": False, "query": {"const": {"n": 1}}}
    schemas["RetryOverride"]["properties"] = {"max_attempts": {"enum": [1, 2]}}
    schemas["OperationRequest"]["required"] = ["dependency", "request"]
    schemas["OperationRequest"]["properties"] |= {
        "handler": False,
        "input": False,
        # Not of all `Seconds`: settings of dependencies are answered with them.
        "deadline_seconds": {"type": "number", "minimum": 1, "maximum": 5},
        "dependency": {"$ref": "#/components/schemas/Name"},
        "request": {"$ref": "#/components/schemas/HttpCall"},
    }
    for operation in (each for path in document["paths"].values() for each in path.values()):
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                parameter["schema"] = {"enum": known[parameter["name"]]}
        # What names the work would make every case but the first a replay of it.
        operation["parameters"] = [each for each in operation["parameters"] if each["in"] != "header"]
    return document


@pytest.mark.long
def test_the_document_says_what_the_code_says(fuzzed: Fuzzed) -> None:
    answer = fuzzed.system.client.get("/api/openapi.json")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.json() == described()
    assert answer.json()["openapi"].startswith("3.1")


def cases() -> Iterator[Any]:
    for route in table():
        ways = [("aimed", VALID)]
        if route.body is not None or route.parameters:
            ways += [("wild", VALID), ("wild", INVALID)]
        elif "{" in route.path:
            ways += [("wild", VALID)]
        for aim, mode in ways:
            yield pytest.param(route, aim, mode, id=f"{route.function}-{aim}-{mode.value}")


@pytest.mark.long
@pytest.mark.parametrize(("route", "aim", "mode"), list(cases()))
def test_fuzzing_finds_no_server_error_and_no_undocumented_answer(
    fuzzed: Fuzzed, route: Route, aim: str, mode: GenerationMode
) -> None:
    operation = fuzzed.operation(route, aim)

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def fuzz(case: Case) -> None:
        answer = case.call(base_url=fuzzed.system.url, session=fuzzed.session)
        case.validate_response(answer, checks=CHECKS)

    fuzz()
