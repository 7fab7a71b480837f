import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_serializer

from durable_retry.base.foreign import plain_json
from durable_retry.base.validation import InvalidInputError

ran: list[str] = []


def lazy() -> Iterator[int]:
    ran.append("lazy")
    yield 1


async def lazier() -> AsyncIterator[int]:
    ran.append("lazier")
    yield 1


class Colour(StrEnum):
    RED = "red"


class Part(BaseModel):
    name: str
    tags: set[str] = set()
    hidden: Any = Field(default=None, exclude=True)
    anything: Any = None


@dataclass
class Pair:
    left: Any
    right: Any = None


class Exiting(BaseModel):
    name: str = "x"

    @field_serializer("name")
    def exits(self, _name: str) -> str:
        sys.exit(1)


class Odd:
    @property
    def __class__(self) -> Any:
        raise RuntimeError

    @__class__.setter
    def __class__(self, _value: Any) -> None: ...


@pytest.mark.parametrize(
    ("value", "document"),
    [
        (None, None),
        ({"a": [1, 2.5, True, None, "x"]}, {"a": [1, 2.5, True, None, "x"]}),
        ((1, (2,)), [1, [2]]),
        ({Colour.RED: Colour.RED}, {"red": "red"}),
        (10**299, 10**299),
        (datetime(2030, 1, 1, tzinfo=UTC), "2030-01-01T00:00:00Z"),
        ([Decimal("1.10")], ["1.10"]),
        (
            Part(name="a", tags={"t"}, hidden=lazy()),
            {"name": "a", "tags": ["t"], "anything": None},
        ),
        (Pair({"x": b"y"}, Pair(1)), {"left": {"x": "y"}, "right": {"left": 1, "right": None}}),
    ],
)
def test_a_value_is_what_it_was(value: Any, document: Any) -> None:
    assert plain_json(value) == document


def test_the_document_is_a_copy() -> None:
    value = {"a": [1]}
    document = plain_json(value)
    value["a"].append(2)
    assert document == {"a": [1]}


def circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


REFUSED: list[tuple[Any, str, str]] = [
    ({"a": [lazy()]}, "/v/a/0", "generator, which has no value yet"),
    ([map(str, [1])], "/v/0", "map, which has no value yet"),
    (lazier(), "/v", "async_generator, which has no value yet"),
    (Pair(lazy()), "/v/left", "has no value yet"),
    (Part(name="a", anything=[lazy()]), "/v/anything/0", "has no value yet"),
    ({"a": 10**300}, "/v/a", "more than 300 digits"),
    ([10**5_000], "/v/0", "more than 300 digits"),
    ({"a": {1: "x"}}, "/v/a/1", "has a key of type int"),
    ({None: 1}, "/v/None", "has a key of type NoneType"),
    ({True: 1}, "/v/True", "has a key of type bool"),
    ({1: "x", "1": "y"}, "/v/1", "has a key of type int"),
    ({"a": b"x"}, "/v/a", "of type bytes"),
    ([{1}], "/v/0", "of type set"),
    ([1, object()], "/v/1", "has no JSON form"),
    ([Odd()], "/v/0", "has no JSON form"),
    ([Exiting()], "/v", "SystemExit: 1"),
    (circular(), "/v", "has no JSON form"),
    ("\ud800", "/v", "half a surrogate pair"),
    ([float("nan")], "/v/0", "not a finite number"),
]


@pytest.mark.parametrize(("value", "pointer", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_would_be_another_thing_is_refused_at_its_place(value: Any, pointer: str, words: str) -> None:
    ran.clear()
    with pytest.raises(InvalidInputError) as raised:
        plain_json(value, "/v")
    assert [each.pointer for each in raised.value.problems] == [pointer]
    assert words in raised.value.problems[0].detail
    assert ran == []


async def test_what_is_awaited_has_no_value_yet() -> None:
    with pytest.raises(InvalidInputError, match="has no value yet"):
        plain_json([asyncio.get_running_loop().create_future()])
