import math
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from durable_retry import handler_registry
from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.handler_registry import HandlerSetupError, find_handler, registered_handlers
from durable_retry.handlers import Call, Event, Outcome, TableWrite, operation_handler


class Nothing(BaseModel):
    pass


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_registry, "_handlers", {})


async def first(_given: Nothing, _call: Call) -> None:
    return None


async def second(_given: Nothing, _call: Call) -> None:
    return None


def test_a_handler_is_found_by_its_name() -> None:
    operation_handler("b", dependency="d", input_model=Nothing)(first)
    operation_handler("a", dependency="d", input_model=Nothing)(second)
    found = find_handler("b")
    assert found is not None
    assert found.function is first
    assert set(registered_handlers()) == {"a", "b"}
    assert find_handler("c") is None


def test_the_same_function_may_be_registered_again() -> None:
    for _ in range(2):
        operation_handler("a", dependency="d", input_model=Nothing)(first)


def test_two_functions_of_one_name_are_a_mistake() -> None:
    operation_handler("a", dependency="d", input_model=Nothing)(first)
    with pytest.raises(HandlerSetupError, match="registered twice"):
        operation_handler("a", dependency="d", input_model=Nothing)(second)


def test_what_would_block_the_worker_is_a_mistake() -> None:
    def blocking(_given: Nothing, _call: Call) -> None:
        return None

    handler: Any = blocking
    with pytest.raises(HandlerSetupError, match="async def"):
        operation_handler("a", dependency="d", input_model=Nothing)(handler)


def test_an_input_model_that_is_none_is_a_mistake() -> None:
    model: Any = dict
    with pytest.raises(HandlerSetupError, match="pydantic"):
        operation_handler("a", dependency="d", input_model=model)(first)


def a_write(**changes: Any) -> TableWrite:
    return TableWrite(**({"table": "Orders", "partition_key": "p", "row_key": "r", "values": {}} | changes))


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"values": {"at": datetime(2026, 11, 21, tzinfo=UTC)}}, "/values/at"),
        ({"values": {"amount": 2**63}}, "/values/amount"),
        ({"values": {"amount": math.nan}}, "/values/amount"),
        ({"values": {"text": "x" * 32_769}}, "/values/text"),
        ({"values": {"not a name": 1}}, "/values/not a name"),
        ({"values": {"RowKey": "r2"}}, "/values/RowKey"),
        ({"values": {1: 1}}, "/values/1"),
        ({"values": {f"p{n}": n for n in range(253)}}, "/values"),
        ({"table": "no"}, "/table"),
        ({"table": "Orders-1"}, "/table"),
        ({"table": None}, "/table"),
        ({"row_key": "a/b"}, "/row_key"),
        ({"partition_key": "x" * 513}, "/partition_key"),
        ({"mode": "upsert"}, "/mode"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_write_that_storage_would_refuse_is_refused_where_it_is_made(
    changes: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        a_write(**changes)
    assert [problem.pointer for problem in refused.value.problems] == [pointer]


def test_a_row_keeps_texts_numbers_and_booleans() -> None:
    values = {"text": "x" * 32_768, "n": 2**63 - 1, "ratio": 0.5, "paid": True}
    assert a_write(values=values).to_json()["values"] == values


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"writes": [a_write(partition_key=p) for p in "ab"]}, "/writes"),
        ({"writes": [a_write(row_key=str(n)) for n in range(76)]}, "/writes"),
        ({"writes": [a_write(), a_write(mode="delete")]}, "/writes/1"),
        ({"writes": [{"table": "Orders"}]}, "/writes/0"),
        ({"events": [{"type": "shipped", "queue": "orders"}]}, "/events/0"),
        ({"events": [Event.to_queue("orders", "shipped")] * 79}, "/events"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_what_cannot_be_one_transaction_is_refused_where_it_is_made(
    given: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        Outcome(1, **given)
    assert [problem.pointer for problem in refused.value.problems] == [pointer]


def test_the_largest_outcome_fits_one_transaction() -> None:
    writes = (a_write(row_key=str(n)) for n in range(75))
    outcome = Outcome(1, writes, (Event.to_queue("orders", "shipped") for _ in range(3)))
    assert (len(tuple(outcome.writes)), len(tuple(outcome.events))) == (75, 3)
