import functools
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from durable_retry.base.validation import InvalidInputError
from durable_retry.features.handlers.signatures import (
    SignatureError,
    read_result,
    result_of,
    signature_of,
    stored_result,
)
from durable_retry.handlers import Call, Outcome
from tests.support.mistakes import pointers_of

CALL: Any = object()


@dataclass
class Receipt:
    id: str
    at: datetime


class Order(BaseModel):
    number: Annotated[int, Field(gt=0)]
    shipped_to: str = Field(default="home", alias="shippedTo")


def charge(order: str, amount: Annotated[int, Field(gt=0)], currency: str = "EUR", /) -> Receipt:
    return Receipt(f"{order} {amount} {currency}", datetime(2026, 1, 1, tzinfo=UTC))


async def ship(order: Order, call: Call) -> Outcome[Receipt]:
    raise NotImplementedError


def pay(card: Receipt) -> Decimal | Outcome[Decimal]:
    raise NotImplementedError


def bare(order, amount=3):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - a function as people write it
    return order, amount


def test_parameters_are_members_of_the_input_and_defaults_may_be_left_out() -> None:
    signature = signature_of(charge)
    assert signature.input_of(("o-1", 5), {}) == {"order": "o-1", "amount": 5}
    bound = signature.bound({"order": "o-1", "amount": 5}, CALL)
    assert charge(*bound.args, **bound.kwargs).id == "o-1 5 EUR"


def test_a_lone_model_or_dataclass_is_the_input_itself() -> None:
    signature = signature_of(ship)
    document = {"number": 7, "shippedTo": "office"}
    order = Order.model_validate(document)
    assert signature.input_of((order,), {}) == signature.input_of((), {"order": order}) == document
    assert signature.bound(document, CALL).args == (order, CALL)
    assert signature_of(pay).input_of((Receipt("r", datetime(2026, 1, 1, tzinfo=UTC)),), {})["id"] == "r"


def test_functions_without_annotations_take_any_json() -> None:
    assert signature_of(bare).bound({"order": [1]}, CALL).args == ([1], 3)


def test_a_method_and_a_part_of_a_function_are_functions() -> None:
    bound = signature_of(functools.partial(charge, "o-1")).bound({"amount": 5}, CALL)
    assert bound.args == (5, "EUR")


@pytest.mark.parametrize(
    ("document", "problems"),
    [
        ({"order": 1, "amount": 0}, {"/input/order", "/input/amount"}),
        ({"order": "o", "amount": 1, "amuont": 1}, {"/input/amuont"}),
        ({"order": "o"}, {"/input/amount"}),
        ("o-1", {"/input"}),
    ],
)
def test_input_of_other_types_is_refused_with_every_mistake(document: Any, problems: set[str]) -> None:
    assert set(pointers_of(signature_of(charge).bound, document, CALL)) == problems


class Colour(Enum):
    RED = "red"


def paint(
    *,
    amount: int,
    price: float,
    is_new: bool,
    at: datetime,
    colour: Colour,
    sizes: tuple[int, ...],
    cost: Decimal,
) -> None:
    raise NotImplementedError


PAINTED: Any = {
    "amount": 5,
    "price": 5,
    "is_new": True,
    "at": "2026-01-02T03:04:05Z",
    "colour": "red",
    "sizes": [1, 2],
    "cost": "0.10",
}


@pytest.mark.parametrize(
    ("member", "value"),
    [
        *(("amount", value) for value in (True, "5", "1_000", 5.0)),
        *(("price", value) for value in (True, "5.0")),
        *(("is_new", value) for value in (1, "true", "on")),
        ("at", 1_767_323_045),
        ("sizes", "12"),
        ("sizes", [1, "2"]),
    ],
)
def test_no_value_becomes_another_type(member: str, value: Any) -> None:
    signature = signature_of(paint)
    assert signature.check_input(PAINTED)["colour"] is Colour.RED
    for check in (signature.check_input, lambda document: signature.input_of((), document)):
        with pytest.raises(InvalidInputError) as caught:
            check({**PAINTED, member: value})
        assert all(problem.pointer.startswith(f"/input/{member}") for problem in caught.value.problems)


def test_a_misspelt_member_has_its_nearest_name() -> None:
    with pytest.raises(InvalidInputError, match='did you mean "amount"'):
        signature_of(charge).check_input({"order": "o", "amuont": 1})


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [(("o", 1, "EUR", 2), {}), (("o",), {"order": "o", "amount": 1}), (("o", "five"), {}), ((), {})],
)
def test_wrong_arguments_are_refused_where_they_are_made(args: Any, kwargs: Any) -> None:
    with pytest.raises(InvalidInputError, match="/input"):
        signature_of(charge).input_of(args, kwargs)


def test_a_result_comes_back_as_what_the_function_returns() -> None:
    for function, value in ((charge, charge("o", 1)), (ship, charge("o", 1)), (pay, Decimal("1.50"))):
        adapter = result_of(function)
        _, text = stored_result(adapter, value, "/value", 1_000)
        assert read_result(adapter, text) == value


def test_a_result_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="/value/at: is required"):
        stored_result(result_of(charge), {"id": "r"}, "/value", 1_000)


def test_a_model_with_aliases_comes_back_from_the_names_of_its_fields() -> None:
    def found() -> Order:
        raise NotImplementedError

    order = Order.model_validate({"number": 7, "shippedTo": "office"})
    stored, _ = stored_result(result_of(found), order, "/value", 1_000)
    assert stored == {"number": 7, "shipped_to": "office"}
    with pytest.raises(ValidationError):
        read_result(result_of(found), "[]")


def test_what_json_cannot_carry_is_a_mistake_in_the_function() -> None:
    def variadic(*orders: str) -> None: ...

    def takes(count: int, lock: CallerLock) -> None: ...

    def takes_a_model(held: Held) -> None: ...

    def gives() -> CallerLock: ...  # type: ignore[empty-body]

    def unreadable(order: "Missing") -> None: ...  # type: ignore[name-defined] # noqa: F821 - as it happens

    for function, words in (
        (variadic, "takes anything"),
        (takes, r"its parameter lock has no JSON form \(.*CallerLock'>\): use JSON types"),
        (takes_a_model, "its input has no JSON form"),
        (gives, "its result has no JSON form"),
        (unreadable, "annotations cannot be read"),
    ):
        with pytest.raises(SignatureError, match=words):
            signature_of(function)


class CallerLock:
    pass


@dataclass
class Held:
    lock: CallerLock
