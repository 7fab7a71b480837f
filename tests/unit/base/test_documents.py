import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from durable_retry.base import documents
from durable_retry.base.documents import (
    MAX_DEPTH,
    MOST_NAMED,
    MalformedJsonError,
    json_problems,
    part_problems,
    read_answer,
    read_checked,
    read_json,
    read_toml,
    walked,
)
from durable_retry.base.validation import InvalidInputError, Problem, count_of

KIB = 1024


class StrangeError(InvalidInputError):
    """A special kind of mistake."""


def as_it_is(document: Any) -> Any:
    return document


def refuse(_: Any) -> Any:
    raise StrangeError([Problem("/x", "is wrong")])


def problems(text: str | bytes, check: Callable[[Any], Any] = as_it_is) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInputError) as caught:
        read_checked(text, check)
    return [(each.pointer, each.detail) for each in caught.value.problems]


TWICE = "stands in its object 2 times"


def test_a_document_without_mistakes_is_what_the_check_makes_of_it() -> None:
    assert read_checked(b'{"a": [{"b": 1}, {"b": 1}]}', lambda document: document["a"][1]) == {"b": 1}


def test_every_member_that_stands_twice_is_reported_where_it_is() -> None:
    text = '{"a": 1, "list": [{}, {"b/c": 1, "b/c": {"d": 1, "d": 2, "d": 3}}], "a": 2}'
    assert sorted(problems(text)) == [
        ("/a", TWICE),
        ("/list/1/b~1c", TWICE),
        ("/list/1/b~1c/d", "stands in its object 3 times"),
    ]


def test_members_that_stand_twice_are_reported_with_what_the_check_found() -> None:
    assert problems('{"a": 1, "a": 2}', refuse) == [("/x", "is wrong"), ("/a", TWICE)]
    with pytest.raises(StrangeError):
        read_checked('{"a": 1, "a": 2}', refuse)


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", b"\xff", "[" * 100_000, "[}" * 100])
def test_a_text_that_is_no_json_is_malformed_and_not_checked(text: str | bytes) -> None:
    with pytest.raises(MalformedJsonError):
        read_checked(text, refuse)
    with pytest.raises(MalformedJsonError):
        read_json(text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_json_is_read_from_text_and_bytes(encoding: str) -> None:
    text = '{"a": [1, 2.5, "\u00eb\U0001f600"]}'
    document = {"a": [1, 2.5, "\u00eb\U0001f600"]}
    for read in (read_json, lambda body: read_checked(body, as_it_is)):
        assert read(text) == read(text.encode(encoding)) == document


def test_the_answer_of_a_dependency_may_have_a_member_twice_and_many_digits() -> None:
    text = '{"a": 1, "a": 0.1000000000000000055}'
    assert read_json(text) == read_answer(text) == {"a": 0.1}
    for unfit in ("1e400", "1" * 301, '"\\ud800"', "[" * 49 + "]" * 49):
        with pytest.raises(InvalidInputError):
            read_answer(unfit)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("padding", range(0, 60, 7))
def test_an_integer_that_the_host_could_not_read_is_refused_at_its_place(padding: int, sign: int) -> None:
    document = {"text": "x" * padding, "items": [1, {"large": sign * 10**300}], "most": 10**300 - 1}
    large = [("/items/1/large", "has more than 300 digits")]
    assert [(each.pointer, each.detail) for each in json_problems(document)] == large
    assert problems(json.dumps(document)) == large


def test_many_digits_in_a_text_are_no_integer() -> None:
    document = {"text": "1" * 1_000}
    assert json_problems(document) == []
    assert read_checked(json.dumps(document), as_it_is) == document


@pytest.mark.parametrize(
    "number",
    [
        *("0.0", "-0.0", "1.50", "0.1", "1e22", "-1.5E-3", "5e-324", "1.7976931348623157e308"),
        *("0.10000000000000001", "123456789012345.67", "0.1" + "0" * 1_000, "0e999"),
        "0.1000000000000000055511151231257827021181583404541015625",
        *("12345678901234567890", "9" * 300),
    ],
)
def test_a_number_that_keeps_its_digits_is_read(number: str) -> None:
    assert read_checked(f"[{number}]", as_it_is) == [json.loads(number)]


@pytest.mark.parametrize(
    "number",
    [
        *("0.1000000000000000055", "12345678901234567890.5", "9007199254740993.0", "1234567890123456.7"),
        *("1e-400", "1.23456789e-320", "0." + "1" * 800, "-0.123456789012345678"),
    ],
)
def test_a_number_that_would_become_another_is_refused_at_its_place(number: str) -> None:
    ((pointer, detail),) = problems(f'{{"a": [1.5, {number}]}}')
    assert pointer == "/a/1"
    assert f"would be {float(number)!r}" in detail


@pytest.mark.parametrize("number", ["1e400", "-1e400"])
def test_a_number_that_is_not_finite_is_refused(number: str) -> None:
    assert problems(f'{{"a": {number}}}') == [("/a", "is not a finite number")]


@pytest.mark.parametrize("pair", ["\\ud83d\\ude00", "\\uD83D\\uDE00", "\\\\ud800"])
def test_a_whole_surrogate_pair_is_a_character(pair: str) -> None:
    assert read_checked(f'["{pair}"]', as_it_is) == json.loads(f'["{pair}"]')


@pytest.mark.parametrize("half", [b"\\ud800", b"\\uDC00", b"\\\\ud83d\\ude00", b"\xed\xa0\x80"])
def test_half_a_surrogate_pair_is_refused_at_its_place(half: bytes) -> None:
    detail = "holds half a surrogate pair, which has no UTF-8 form"
    assert problems(b'{"a": ["' + half + b'"], "b": {"' + half + b'": 1}}') == [
        ("/a/0", detail),
        ("/b", detail),
    ]


def nested(opening: str, closing: str, levels: int) -> str:
    """A text of so many levels, whose brackets take turns."""
    pairs = [(opening[level % len(opening)], closing[level % len(closing)]) for level in range(levels)]
    before = "".join(bracket + ('"a":' if bracket == "{" else "") for bracket, _ in pairs)
    return before + "1" + "".join(bracket for _, bracket in reversed(pairs))


@pytest.mark.shows("C9")
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{", "}"), ("[{", "]}"), ("{[[", "}]]")])
def test_depth_is_limited(opening: str, closing: str) -> None:
    fits, deeper = (nested(opening, closing, levels) for levels in (MAX_DEPTH, MAX_DEPTH + 1))
    assert read_checked(fits, as_it_is) == json.loads(fits)
    place = "".join("/a" if opening[level % len(opening)] == "{" else "/0" for level in range(MAX_DEPTH))
    assert problems(deeper, refuse) == [(place, f"nests deeper than {MAX_DEPTH} levels")]
    assert read_checked(deeper, as_it_is, levels=MAX_DEPTH + 1) == json.loads(deeper)
    assert [each.pointer for each in part_problems(json.loads(deeper), 10_000)] == [place]
    assert part_problems(json.loads(fits), 10_000) == json_problems(json.loads(fits)) == []


def test_brackets_in_texts_do_not_nest() -> None:
    document = {"[" * 60: ["[{" * 60, '\\"[{' * 60, "\\" + "{" * 60] * 60}
    assert read_checked(json.dumps(document), as_it_is) == document


def test_a_part_has_the_size_of_a_whole_document() -> None:
    assert [each.detail for each in part_problems("x" * 9, 10)] == ["is larger than 10 bytes"]
    assert part_problems("x" * 8, 10) == []


@pytest.mark.parametrize("unfit", ["1e999", "1" * 301, '"\\ud800"', "0.1000000000000000055"])
def test_a_part_that_is_unfit_leaves_the_others_as_they_are(unfit: str) -> None:
    text = f'[{{"a": [{unfit}]}}, {{"rounded 1.5": "Infinity"}}]'
    wrong, right = read_checked(text, as_it_is, has_parts=True)
    assert [each.pointer for each in part_problems(wrong, 1_000)] == ["/a/0"]
    assert part_problems(right, 1_000) == []
    with pytest.raises(InvalidInputError):
        read_checked(text, as_it_is)


def test_every_value_is_visited_with_its_path() -> None:
    document = {"a": [1, {"b": []}], "c": {}}
    assert [(tuple(path), value) for path, value in walked(document)] == [
        ((), document),
        (("a",), [1, {"b": []}]),
        (("a", 0), 1),
        (("a", 1), {"b": []}),
        (("a", 1, "b"), []),
        (("c",), {}),
    ]
    assert [tuple(path) for path, _ in walked("text")] == [()]


def filled_with(part: str, beginning: str = "[", end: str = "]", size: int = 62 * KIB) -> str:
    return beginning + ",".join([part] * (size // (len(part) + 1))) + end


HOSTILE = {
    "one object in another, each with a member twice": '{"a":1,"a":' * 4_000 + "1" + "}" * 4_000,
    "deep lists": "[" * 9_000 + '{"a":1,"a":2}' + "]" * 9_000,
    "deeper than the parser": "[" * 62 * KIB,
    "many objects with a member twice": filled_with('{"a":1,"a":2}'),
    "many members twice": filled_with('"a":1', "{", "}"),
    "many names twice": "{" + ",".join(f'"{n}":1,"{n}":2' for n in range(4_000)) + "}",
    "half pairs below a long name": filled_with('"\\ud800"', '{"' + "n" * 20_000 + '":[', "]}"),
    "half pairs in names": "{" + ",".join(f'"\\ud800{n}":1' for n in range(4_000)) + "}",
    "numbers that are rounded": filled_with("0.1000000000000000055"),
    "digits of a fraction": "[0." + "1" * 62 * KIB + "]",
    "a fraction in 700 digits": filled_with("0." + "1" * 700),
    "infinite numbers at depth": '{"nnnnnnnnnn":' * 47 + filled_with("1e999", size=30 * KIB) + "}" * 47,
}


@contextmanager
def counted_visits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    visits = [0]

    def counting(document: Any) -> Iterator[Any]:
        for visited in walked(document):
            visits[0] += 1
            yield visited

    with monkeypatch.context() as patched:
        patched.setattr(documents, "walked", counting)
        yield visits


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_is_wrong_is_found_in_one_walk_with_a_small_multiple_of_the_text_in_memory(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = text.encode()
    with counted_visits(monkeypatch) as visits, pytest.raises(InvalidInputError) as caught:
        read_checked(body, as_it_is)
    listed = caught.value.problems
    assert visits[0] <= len(body)
    assert len(listed) <= MOST_NAMED + 1
    assert sum(len(each.pointer) + len(each.detail) for each in listed) < 25 * KIB
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError):
            read_checked(body, as_it_is)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 60 * len(body)


def test_what_is_not_named_is_counted() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_checked(HOSTILE["many names twice"], as_it_is)
    *named, more = caught.value.problems
    assert (len(named), more.detail) == (MOST_NAMED, "3980 more mistakes are not listed")
    assert count_of(caught.value.problems) == 4_000
    with pytest.raises(InvalidInputError) as caught:
        read_checked("[" + "1e999," * 20 + "1e999]", as_it_is)
    assert caught.value.problems[-1].detail == "1 more mistake is not listed"


def test_a_document_without_a_sign_of_a_mistake_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps([{"id": n, "name": "a name", "price": n / 4, "tags": [[], {}]} for n in range(1_000)])
    with counted_visits(monkeypatch) as visits:
        read_checked(text, as_it_is)
    assert visits == [0]


DEEP = 5_000


@pytest.mark.parametrize(
    "text",
    ["x = = 1", f"x = {'[' * DEEP}{']' * DEEP}", f"x = {'{a = ' * DEEP}1{'}' * DEEP}", f"x{'.a' * DEEP} = 1"],
)
def test_what_is_no_toml_or_nests_without_end_is_a_mistake(text: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid value|nests too deeply"):
        read_toml(text)


def test_a_document_of_json_may_stand_in_toml() -> None:
    assert read_toml(f"[a.b.c]\njson = {'[' * MAX_DEPTH}1.5{']' * MAX_DEPTH}")
