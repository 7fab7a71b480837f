"""JSON that callers sent: a member that stands twice is a mistake, reported with every other one."""

from typing import Any

import pytest

from durable_retry.engine.base.json_input import MalformedJsonError, json_problems, read_checked, read_json
from durable_retry.engine.base.validation import InvalidInputError, Problem


class StrangeError(InvalidInputError):
    """A special kind of mistake."""


def as_it_is(document: Any) -> Any:
    return document


def refuse(_: Any) -> Any:
    raise StrangeError([Problem("/x", "is wrong")])


def problems(text: str, check: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInputError) as caught:
        read_checked(text, check)
    return [(each.pointer, each.detail) for each in caught.value.problems]


TWICE = "stands in its object more than once"


def test_a_document_without_mistakes_is_what_the_check_makes_of_it() -> None:
    assert read_checked(b'{"a": [{"b": 1}, {"b": 1}]}', lambda document: document["a"][1]) == {"b": 1}


def test_every_member_that_stands_twice_is_reported_where_it_is() -> None:
    text = '{"a": 1, "list": [{}, {"b/c": 1, "b/c": {"d": 1, "d": 2, "d": 3}}], "a": 2}'
    assert sorted(problems(text, as_it_is)) == [
        ("/a", TWICE),
        ("/list/1/b~1c", TWICE),
        ("/list/1/b~1c/d", TWICE),
    ]


def test_members_that_stand_twice_are_reported_with_what_the_check_found() -> None:
    assert problems('{"a": 1, "a": 2}', refuse) == [("/x", "is wrong"), ("/a", TWICE)]
    with pytest.raises(StrangeError):
        read_checked('{"a": 1, "a": 2}', refuse)


def test_a_text_that_is_no_json_is_malformed_and_not_checked() -> None:
    with pytest.raises(MalformedJsonError):
        read_checked("{", refuse)


def test_the_answer_of_a_dependency_may_have_a_member_twice() -> None:
    assert read_json('{"a": 1, "a": 2}') == {"a": 2}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("padding", range(0, 60, 7))
def test_an_integer_that_the_host_could_not_read_is_refused_at_its_place(padding: int, sign: int) -> None:
    document = {"text": "x" * padding, "items": [1, {"large": sign * 10**300}], "most": 10**300 - 1}
    assert [(each.pointer, each.detail) for each in json_problems(document)] == [
        ("/items/1/large", "has more than 300 digits")
    ]


def test_many_digits_in_a_text_are_no_integer() -> None:
    assert json_problems({"text": "1" * 1_000}) == []
