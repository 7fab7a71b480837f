import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.features.schemas.members import SchemaKeys
from durable_retry.features.schemas.schema import problems_of_schemas, validator_of
from durable_retry.rules.config.dependencies_file import ConfigError, key_path, parse_config
from durable_retry.rules.config.dependency import Targets
from durable_retry.rules.operations.request import parse_operation
from durable_retry.rules.operations.submission import check_target
from tests.support.builders import PAYMENTS

CHARGE = {
    "type": "object",
    "required": ["amount", "currency"],
    "properties": {
        "amount": {"type": ["integer", "null"], "minimum": 1},
        "currency": {"$ref": "#/$defs/currency"},
        "card": {"type": "object", "properties": {"number": {"pattern": "^[0-9]{16}$"}}},
    },
    "patternProperties": {"^x-": {}},
    "additionalProperties": False,
    "$defs": {"currency": {"enum": ["EUR", "USD"]}},
}


@pytest.fixture(autouse=True)
def files() -> Iterator[None]:
    yield
    validator_of.cache_clear()


@pytest.fixture
def charge(tmp_path: Path) -> str:
    file = tmp_path / "charge.json"
    file.write_text(json.dumps(CHARGE))
    return str(file)


def problems(schema: str | dict[str, str], path: str = "/charges", **request: Any) -> dict[str, str]:
    payments = replace(PAYMENTS, of_features={"schemas": SchemaKeys(files=schema)})
    submitted = parse_operation({"dependency": "payments", "request": {"path": path} | request})
    try:
        check_target(submitted, Targets({"payments": payments}, {}, ()))
    except InvalidInputError as error:
        return {problem.pointer: problem.detail for problem in error.problems}
    return {}


def test_a_request_that_fits_is_taken(charge: str) -> None:
    assert problems(charge, json={"amount": 5, "currency": "EUR", "x-note": 1}) == {}


def test_each_mistake_has_its_place_and_cites_no_value(charge: str) -> None:
    sent = {"amount": "4711", "card": {"number": "0815"}, "zip": 1}
    assert problems(charge, json=sent) == {
        "/request/json/amount": "must be integer or null",
        "/request/json/currency": "is required",
        "/request/json/card/number": 'does not meet pattern: "^[0-9]{16}$"',
        "/request/json/zip": "is not a known key",
    }
    assert problems(charge, json={"amount": 0, "currency": "CHF"}) == {
        "/request/json/amount": "does not meet minimum: 1",
        "/request/json/currency": 'does not meet enum: ["EUR", "USD"]',
    }
    assert problems(charge, json=None) == {"/request/json": "must be object"}


def test_text_is_refused_where_json_is_checked_and_a_request_without_either_is_not(charge: str) -> None:
    assert problems(charge, body="amount=5") == {
        "/request/body": f"is text: payments takes json that fits {charge}"
    }
    assert problems(charge, method="GET") == {}


@pytest.mark.parametrize(
    ("path", "is_checked"),
    [
        ("/charges", True),
        ("/customers/7/charges", True),
        ("/customers/7/charges/8", False),
        ("/refunds", False),
        ("/%63harges/", True),
    ],
)
def test_a_schema_is_for_a_path(charge: str, path: str, is_checked: object) -> None:
    by_path = {"/charges": charge, "/customers/*/charges": charge}
    assert (problems(by_path, path, json=7) == {"/request/json": "must be object"}) is is_checked


def test_a_dependency_without_a_schema_and_a_handler_take_anything() -> None:
    assert problems("", json=7) == {}
    assert problems({}, json=7) == {}


@pytest.mark.parametrize(
    ("schema", "place"), [("3", "schema"), ('{ "/a" = 3, "/b" = "b.json" }', 'schema."/a"')]
)
def test_what_names_no_file_is_refused_where_it_stands(schema: str, place: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(f"[dependencies.a]\nschema = {schema}", {})
    (problem,) = refused.value.problems
    assert (key_path(problem.pointer), problem.detail) == (f"dependencies.a.{place}", "must be a string")


def test_what_was_accepted_keeps_nothing_of_it() -> None:
    (dependency,) = parse_config('[dependencies.a]\nschema = "a.json"', {}).dependencies.values()
    assert dependency.of_features["schemas"].model_dump() == {"schema": "a.json"}


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (None, "cannot read FILE in the app's folder: No such file or directory"),
        ("{", "FILE is not JSON: "),
        (
            '{"properties": {"a": {"type": "objekt"}}}',
            "FILE is no JSON Schema: /properties/a/type: 'objekt' is",
        ),
        (
            '{"$ref": "http://127.0.0.1:9/a.json"}',
            "FILE refers to http://127.0.0.1:9/a.json, which it does not",
        ),
        ('{"properties": {"a": {"$ref": "#/$defs/b"}}}', "FILE refers to #/$defs/b, which it does not have"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_mistake_of_the_dependency(
    tmp_path: Path, text: str | None, detail: str
) -> None:
    file = tmp_path / "a.json"
    if text is not None:
        file.write_text(text)
    dependency = replace(
        PAYMENTS, of_features={"schemas": SchemaKeys(files={"/a": str(file), "/b": str(file)})}
    )
    (problem,) = problems_of_schemas(dependency)
    assert problem.pointer == "/schema"
    assert problem.detail.startswith(detail.replace("FILE", str(file)))


def test_schemas_of_both_kinds_are_read(charge: str, tmp_path: Path) -> None:
    (tmp_path / "any.json").write_text("true")
    by_path = {"/charges": charge, "/any": str(tmp_path / "any.json")}
    dependency = replace(PAYMENTS, of_features={"schemas": SchemaKeys(files=by_path)})
    assert list(problems_of_schemas(dependency)) == []
    assert problems(by_path, "/any", json=7) == {}


def test_an_app_without_the_package_says_what_to_install(
    charge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    dependency = replace(PAYMENTS, of_features={"schemas": SchemaKeys(files=charge)})
    assert list(problems_of_schemas(dependency)) == [
        Problem("/schema", "needs the package jsonschema: install durable-retry[schemas]")
    ]
