from typing import Any

import pytest
from pydantic import BaseModel

from durable_retry import handlers as handler_registry
from durable_retry.handlers import (
    Call,
    HandlerSetupError,
    find_handler,
    operation_handler,
    registered_handlers,
)


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
    assert [handler.name for handler in registered_handlers()] == ["a", "b"]
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
