import importlib
import re
import sys
from collections.abc import Iterator
from typing import Any

import azure.functions as func
import jsonschema_rs
import pytest

from durable_retry.triggers.http.api import described, table, with_described_properties

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, dict[str, Any]]]:
    """The HTTP trigger of each function of the app, by the function's name."""
    monkeypatch.setenv("FLAKY_TARGET_URL", "http://127.0.0.1:9")
    sys.modules.pop("function_app", None)
    app = importlib.import_module("function_app").app
    triggers = {each.get_function_name(): each.get_trigger().get_dict_repr() for each in app.get_functions()}
    yield {name: trigger for name, trigger in triggers.items() if trigger["type"] == "httpTrigger"}
    sys.modules.pop("function_app", None)


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"]
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def test_every_http_function_is_documented_and_nothing_else(registered: dict[str, dict[str, Any]]) -> None:
    found = {
        (name, method.value, trigger["route"], trigger["authLevel"] is func.AuthLevel.ANONYMOUS)
        for name, trigger in registered.items()
        for method in trigger["methods"]
    }
    assert {(route.function, route.method, route.path, route.anonymous) for route in table()} == found


def test_every_reference_leads_to_a_schema_and_every_schema_is_used() -> None:
    document = described()
    used = {reference.removeprefix("#/components/schemas/") for reference in references(document)}
    assert used == set(document["components"]["schemas"])


@pytest.mark.parametrize("name", sorted(described()["components"]["schemas"]))
def test_every_schema_is_a_json_schema(name: str) -> None:
    schema = described()["components"]["schemas"][name]
    jsonschema_rs.meta.validate({"$schema": DIALECT, **schema})


@pytest.mark.parametrize("route", table(), ids=lambda route: route.function)
def test_a_route_documents_its_path_its_answers_and_its_key(route: Any) -> None:
    operation = described()["paths"]["/api/" + route.path.replace("{*", "{")][route.method.lower()]
    in_path = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
    assert in_path == set(re.findall(r"\{\*?(\w+)\}", route.path))
    assert any(200 <= int(status) < 300 for status in operation["responses"])
    assert ("401" in operation["responses"]) is not route.anonymous
    for status in route.problems:
        answer = operation["responses"][str(status.value)]
        assert list(answer["content"]) == ["application/problem+json"]


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ("Key", "evt-1", "evt 1"),
        ("ResourceName", "payments", "-payments"),
        ("QueueName", "charge-events", "charge--events"),
        ("Label", "order 42", "order\n42"),
        ("Label", "o", " order 42"),
        ("Label", "42", "order 42 "),
        ("RetryOverride", {"max_attempts": -1}, {"max_attempts": -2}),
        ("OperationRequest", {"handler": "ship", "input": 1}, {"hanlder": "ship"}),
    ],
)
def test_the_schemas_hold_what_validation_holds(schema: str, good: Any, bad: Any) -> None:
    components = {"schemas": described()["components"]["schemas"]}
    validator = jsonschema_rs.validator_for(
        {"$schema": DIALECT, "components": components, "$ref": f"#/components/schemas/{schema}"}
    )
    assert validator.is_valid(good)
    assert not validator.is_valid(bad)


@pytest.mark.parametrize("path", ["/api/operations", "/api/operations/enqueue"])
def test_both_forms_of_a_cloud_event_are_described(path: str) -> None:
    body = described()["paths"][path]["post"]["requestBody"]
    assert set(body["content"]) == {"application/json", "application/cloudevents+json"}
    assert "`ce-id`" in body["description"]


def test_descriptions_of_attributes_stand_at_their_properties() -> None:
    properties = described()["components"]["schemas"]["HttpCall"]["properties"]
    assert properties["path"]["description"] == "Below the dependency's base_url."
    assert properties["json"]["description"].startswith("The field")


def test_a_description_without_attributes_stays() -> None:
    schema = {"description": "One step.", "properties": {"name": {}}}
    assert with_described_properties(schema) == schema
