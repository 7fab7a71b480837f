from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from activities.handling import Call, operation_handler
from engine.config import parse_config
from engine.models import parse_operation
from engine.problem import InvalidInputError
from stores import handler_registry
from stores.configuration import using
from tests.operation_stage import START
from triggers.resolution import Origin, UnknownTargetError, parse, resolve

CONFIG = """
[dependencies.payments]
base_url = "https://payments.example.com"
headers = { X-Signed = "${SIGNATURE}", Accept = "application/json" }
auth = { header = "X-Api-Key", value = "${KEY}" }
retry = { max_attempts = 4 }
"""
ORIGIN = Origin(source="http", scope="key:", key="evt-1")
CALL = {"dependency": "payments", "request": {"method": "POST", "path": "/charges", "json": {"a": 1}}}


class Order(BaseModel):
    amount: int


@pytest.fixture(autouse=True)
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(handler_registry, "_handlers", {})

    @operation_handler("ship-order", dependency="payments", input_model=Order)
    async def ship(_order: Order, _call: Call) -> None:
        return None

    with using(parse_config(CONFIG, {"SIGNATURE": "signature-1", "KEY": "key-12345"})):
        yield


def pointers(document: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        resolve(parse_operation(document), ORIGIN, START)
    return [problem.pointer for problem in caught.value.problems]


def test_an_operation_knows_its_policy_its_deadline_and_no_secret() -> None:
    operation = resolve(parse_operation(CALL | {"deadline_seconds": 60.0}), ORIGIN, START)
    assert operation.policy.max_attempts == 4
    assert operation.deadline_at is not None
    assert (operation.deadline_at - START).total_seconds() == 60
    assert "key-12345" not in str(operation.to_json())
    assert "signature-1" not in str(operation.to_json())


def test_the_id_depends_on_scope_and_key_alone() -> None:
    first = resolve(parse_operation(CALL), ORIGIN, START)
    other = CALL | {"request": {"method": "GET", "path": "/x"}}
    second = resolve(parse_operation(other), ORIGIN, START)
    elsewhere = resolve(parse_operation(CALL), Origin(source="http", scope="key:b", key="evt-1"), START)
    assert first.operation_id == second.operation_id != elsewhere.operation_id
    assert first.fingerprint != second.fingerprint


def test_an_unknown_dependency_is_told_with_the_nearest_name() -> None:
    with pytest.raises(UnknownTargetError, match="did you mean"):
        resolve(parse_operation(CALL | {"dependency": "payment"}), ORIGIN, START)


def test_a_body_of_wrong_form_is_told_its_unknown_names_too() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(CALL | {"dependency": "payment", "foo": 1})
    assert [problem.pointer for problem in caught.value.problems] == ["/foo", "/dependency"]
    with pytest.raises(InvalidInputError) as caught:
        parse({"handler": "ship-ordre", "dependency": 3})
    assert "/handler" in [problem.pointer for problem in caught.value.problems]


def test_an_unknown_handler_is_told() -> None:
    with pytest.raises(UnknownTargetError, match="ship-ordre"):
        resolve(parse_operation({"handler": "ship-ordre", "input": {}}), ORIGIN, START)


def test_a_handlers_input_is_held_to_its_model() -> None:
    assert pointers({"handler": "ship-order", "input": {"amount": "x"}}) == ["/input/amount"]


def test_a_handler_brings_its_dependency() -> None:
    operation = resolve(parse_operation({"handler": "ship-order", "input": {"amount": 1}}), ORIGIN, START)
    assert (operation.handler, operation.dependency) == ("ship-order", "payments")


@pytest.mark.parametrize("name", ["x-api-key", "X-SIGNED", "Idempotency-key"])
def test_headers_that_the_app_sets_are_refused(name: str) -> None:
    request = {"method": "POST", "path": "/x", "headers": {name: "mine"}}
    assert pointers(CALL | {"request": request}) == [f"/request/headers/{name}"]


def test_mistakes_of_every_kind_are_told_together() -> None:
    document = {
        **CALL,
        "request": {"method": "POST", "path": "/x", "headers": {"X-Api-Key": "mine"}},
        "retry": {"max_attempts": 9},
        "on_success": [{"type": "t", "dependency": "nobody", "path": "/hook"}],
    }
    assert pointers(document) == [
        "/retry/max_attempts",
        "/request/headers/X-Api-Key",
        "/on_success/0/dependency",
    ]


@pytest.mark.parametrize("queue", ["durableretry-control-00", "durableretry-workitems", "azure-webjobs-host"])
def test_an_event_cannot_go_to_a_queue_of_the_platform(queue: str) -> None:
    assert pointers(CALL | {"on_success": [{"type": "t", "queue": queue}]}) == ["/on_success/0/queue"]
    resolve(parse_operation(CALL | {"on_success": [{"type": "t", "queue": "durable-events"}]}), ORIGIN, START)
