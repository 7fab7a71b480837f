from dataclasses import replace
from typing import Any

import pytest

from durable_retry.features.order.names import OrderOnFailure
from durable_retry.features.order.rules.members import Order, OrderKeys, blocks_its_order, order_of
from durable_retry.features.replay.rules import parts_of_replay
from durable_retry.rules.config.dependencies_file import ConfigError, key_path, parse_config
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.keys import ScopedKey
from durable_retry.rules.operations.operation import OperationInput, operation_from
from durable_retry.rules.operations.request import parse_operation
from tests.support.builders import NOON, PAYMENTS, an_operation
from tests.support.feature_parts import in_order
from tests.support.mistakes import pointers_of

SKIPPING = replace(PAYMENTS, of_features={"order": OrderKeys(order_on_failure="skip")})


def submitted(dependency: Dependency = PAYMENTS, **order: Any) -> OperationInput:
    request = parse_operation({"dependency": "payments", "request": {}} | order)
    return operation_from(request, dependency, ScopedKey("explicit", "evt-1"), source="http", now=NOON)


def test_what_follows_a_failure_needs_an_order_key() -> None:
    assert pointers_of(submitted, order_on_failure="skip") == ["/order_on_failure"]


@pytest.mark.parametrize(
    ("dependency", "own", "on_failure"),
    [
        (PAYMENTS, None, OrderOnFailure.BLOCK),
        (PAYMENTS, "skip", OrderOnFailure.SKIP),
        (SKIPPING, None, OrderOnFailure.SKIP),
        (SKIPPING, "block", OrderOnFailure.BLOCK),
    ],
)
def test_what_follows_a_failure_is_that_of_the_operation_or_of_its_dependency(
    dependency: Dependency, own: str | None, on_failure: OrderOnFailure
) -> None:
    operation = submitted(dependency, order_key="c", order_on_failure=own)
    assert order_of(operation) == Order(key="c", on_failure=on_failure)
    assert (operation.order_key, operation.order_on_failure) == ("c", on_failure)
    assert blocks_its_order(operation) is (on_failure is OrderOnFailure.BLOCK)


@pytest.mark.parametrize("order", [{}, {"order_key": None}])
def test_without_an_order_key_an_operation_is_in_no_order(order: dict[str, None]) -> None:
    operation = submitted(SKIPPING, **order)
    assert (operation.parts, operation.order_key, operation.order_on_failure) == (None, None, None)
    assert order_of(operation) is None
    assert not blocks_its_order(operation)


def test_a_replay_keeps_its_order_and_finds_its_place_there() -> None:
    placed = an_operation(parts=in_order("c", OrderOnFailure.SKIP, number=7, after="op-before"))
    assert parts_of_replay(placed.parts or {}) == in_order("c", OrderOnFailure.SKIP)


def test_a_replay_keeps_nothing_of_what_only_a_first_run_waits_for() -> None:
    assert parts_of_replay({"debounce": {"key": "k"}, "taken_out": {"key": "k"}}) is None


def test_a_dependency_says_what_its_operations_do_unless_they_say_so() -> None:
    key = "order_on_failure ="
    text = f'[defaults]\n{key} "skip"\n[dependencies.a]\n[dependencies.b]\n{key} "block"'
    read = parse_config(text, {}).dependencies
    keys = {name: dependency.of_features["order"] for name, dependency in read.items()}
    assert keys == {"a": OrderKeys(order_on_failure="skip"), "b": OrderKeys(order_on_failure="block")}
    with pytest.raises(ConfigError) as refused:
        parse_config('[dependencies.a]\norder_on_failure = "wait"', {})
    assert [key_path(problem.pointer) for problem in refused.value.problems] == [
        "dependencies.a.order_on_failure"
    ]
