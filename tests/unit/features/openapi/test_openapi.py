import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import azure.functions as func
import jsonschema_rs
import pytest
from pydantic import TypeAdapter

from durable_retry.base.answers import ProblemDocument
from durable_retry.base.validation import validated
from durable_retry.features.openapi import routes as openapi_routes
from durable_retry.features.openapi.descriptions import MEMBERS
from durable_retry.features.openapi.document import openapi_document, with_described_properties
from durable_retry.features.openapi.routes import described
from durable_retry.http.dispatch import responder
from durable_retry.http.routes import Route, RouteAnswer
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import Plugin, features
from durable_retry.routing import collections, table
from durable_retry.rules.config.dependency import models_of_features
from durable_retry.rules.operations.request import OperationRequest, members_by_feature, split_members
from durable_retry.settings.configuration import Registration

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"]
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def test_every_route_is_documented_and_nothing_else() -> None:
    documented = {
        (method.upper(), path): operation["operationId"]
        for path, operations in described()["paths"].items()
        for method, operation in operations.items()
    }
    paths = {(route.method, f"/api/{route.path.replace('*', '')}"): route.function for route in table()}
    assert documented == paths


def test_every_reference_leads_to_a_schema_and_every_schema_is_used() -> None:
    document = described()
    used = {reference.removeprefix("#/components/schemas/") for reference in references(document)}
    assert used == set(document["components"]["schemas"])


def test_a_document_has_the_schemas_of_its_routes_alone() -> None:
    routes = [route for route in table() if route.path == "health"]
    assert "BatchRequest" not in openapi_document(routes, "1", "/api")["components"]["schemas"]


@pytest.mark.parametrize("name", sorted(described()["components"]["schemas"]))
def test_every_schema_is_a_json_schema(name: str) -> None:
    schema = described()["components"]["schemas"][name]
    jsonschema_rs.meta.validate({"$schema": DIALECT, **schema})


def test_the_document_says_where_it_is_served_and_what_each_tag_is_about() -> None:
    assert [server["url"] for server in described()["servers"]] == ["/"]
    assert all(tag["description"].endswith(".") for tag in described()["tags"])


@pytest.mark.parametrize("name", sorted(described()["components"]["schemas"]))
def test_every_member_of_a_schema_is_described(name: str) -> None:
    members = described()["components"]["schemas"][name].get("properties", {})
    assert [member for member, schema in members.items() if not schema.get("description")] == []


@pytest.mark.parametrize("route", table(), ids=lambda route: route.function)
def test_every_parameter_is_described(route: Any) -> None:
    assert [each["name"] for each in documented(route)["parameters"] if not each["description"]] == []


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


def documented(route: Route) -> dict[str, Any]:
    path = "/api/" + route.path.replace("{*", "{")
    operation: dict[str, Any] = described()["paths"][path][route.method.lower()]
    return operation


@pytest.mark.parametrize("route", table(), ids=lambda route: route.function)
def test_every_operation_has_a_description(route: Route) -> None:
    assert documented(route)["description"].startswith(documented(route)["summary"])


@pytest.mark.parametrize(
    "route", [route for route in table() if route.body is not None], ids=lambda route: route.function
)
def test_the_example_of_a_body_is_one(route: Route) -> None:
    assert route.body is not None
    for media_type, content in documented(route)["requestBody"]["content"].items():
        example = content["example"]
        body = example["data"] if media_type == "application/cloudevents+json" else example
        own, of_features = split_members(body) if route.body is OperationRequest else (body, {})
        assert validated(route.body, own).model_fields_set == own.keys()
        for name, members in of_features.items():
            assert validated(members_by_feature()[name].model, members)


ANSWERS = [(route, answer) for route in table() for answer in route.answers if answer.model is not None]


@pytest.mark.parametrize(
    ("route", "answer"), ANSWERS, ids=lambda each: getattr(each, "function", getattr(each, "status", None))
)
def test_the_example_of_an_answer_is_read_by_its_class(route: Route, answer: RouteAnswer) -> None:
    content = documented(route)["responses"][str(answer.status.value)]["content"]
    example = content["application/json"]["example"]
    assert answer.model is not None
    read = TypeAdapter[Any](answer.model).validate_python(example, strict=False)
    assert read.to_json().keys() >= example.keys()


@pytest.mark.parametrize("route", table(), ids=lambda route: route.function)
def test_the_example_of_a_problem_is_read_by_its_class(route: Route) -> None:
    for status in route.problems:
        content = documented(route)["responses"][str(status.value)]["content"]
        example = content["application/problem+json"]["example"]
        assert ProblemDocument.model_validate_json(json.dumps(example)).status == status


def test_every_sentence_about_a_name_is_needed() -> None:
    """A class that says of its member what it is leaves none to be said for all."""
    schemas = described()["components"]["schemas"].values()
    said = {
        (name, member.get("description"))
        for schema in schemas
        for name, member in schema.get("properties", {}).items()
    }
    assert MEMBERS.items() <= said


async def answer(**headers: str) -> func.HttpResponse:
    request = func.HttpRequest("GET", "http://localhost/api/openapi.json", headers=headers, body=b"")
    respond = responder(route for route in table() if route.path == "openapi.json")
    return await respond(request, TaskHub("hub"))


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of what a build wrote, for a process that was not asked yet."""
    monkeypatch.setattr(openapi_routes, "SHIPPED", tmp_path)
    openapi_routes._document_and_tag.cache_clear()
    yield tmp_path
    openapi_routes._document_and_tag.cache_clear()


@pytest.mark.parametrize("added", [None, features()], ids=["with the console", "the core alone"])
async def test_a_build_ships_the_document_which_is_sent_as_it_is(
    added: tuple[Plugin, ...] | None, shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = openapi_routes.documents()
    described_ones = [json.loads(content)["paths"] for content in built.values()]
    assert described()["paths"] in described_ones
    assert len(described_ones) == 2
    for name, content in built.items():
        (shipped / name).write_bytes(content)
    monkeypatch.setattr(openapi_routes, "collections", lambda: collections(added))
    monkeypatch.setattr(openapi_routes, "described", lambda: pytest.fail("it is made anew"))
    sent = json.loads((await answer()).get_body())
    assert ("/api/overview" in sent["paths"]) == (added is None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VERSION", "9.9.9"),
        ("api_path", lambda: "/api/retries"),
        ("registration", lambda: Registration(sources=frozenset({"queue"}))),
        ("collections", lambda: [*collections()][1:]),
    ],
)
async def test_an_app_that_has_something_else_makes_its_own_document(
    name: str, value: Any, shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in openapi_routes.documents():
        (shipped / file).write_text("another app's")
    monkeypatch.setattr(openapi_routes, name, value)
    assert json.loads((await answer()).get_body())["openapi"] == "3.1.0"


async def test_the_document_is_written_once_and_not_sent_again_to_who_has_it() -> None:
    """Nobody needs a key to ask for it."""
    first, second = await answer(), await answer()
    assert json.loads(first.get_body()) == described()
    assert second.get_body() is first.get_body()
    known = await answer(**{"If-None-Match": first.headers["ETag"]})
    assert (known.status_code, known.get_body()) == (304, b"")


def test_what_features_add_to_a_dependency_and_to_an_operation_is_described_among_the_rest() -> None:
    schemas = described()["components"]["schemas"]
    dependency, operation = schemas["Dependency"]["properties"], schemas["OperationRequest"]["properties"]
    models = models_of_features().values()
    keys = {info.alias or name for model in models for name, info in model.model_fields.items()}
    assert dependency.keys() >= {"name", *keys}
    assert all(dependency[key]["description"] for key in keys)
    members = {name for each in members_by_feature().values() for name in each.model.model_fields}
    assert operation.keys() >= {"dependency", *members}
    assert not {model.__name__ for model in models} & schemas.keys()


def test_what_is_sent_and_shown_has_one_description() -> None:
    assert [name for name in described()["components"]["schemas"] if "-" in name] == []
