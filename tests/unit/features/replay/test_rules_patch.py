from typing import Any

import pytest

from durable_retry.base.validation import InvalidInputError, Strict, validated
from durable_retry.features.replay.rules import Patch, patched
from tests.support.mistakes import pointers_of

MOST_BYTES = 1_000


class Body(Strict):
    patch: Patch


def steps(*written: dict[str, Any]) -> Patch:
    return validated(Body, {"patch": list(written)}).patch


def content() -> dict[str, Any]:
    return {"input": {"amount": 5, "lines": ["a", "b"], "to": {"name": "ada"}}}


@pytest.mark.parametrize(
    ("step", "place", "expected"),
    [
        ({"op": "replace", "path": "/input/amount", "value": 6}, "amount", 6),
        ({"op": "add", "path": "/input/currency", "value": None}, "currency", None),
        ({"op": "add", "path": "/input/lines/1", "value": "x"}, "lines", ["a", "x", "b"]),
        ({"op": "add", "path": "/input/lines/-", "value": "c"}, "lines", ["a", "b", "c"]),
        ({"op": "replace", "path": "/input/lines/0", "value": "x"}, "lines", ["x", "b"]),
        ({"op": "remove", "path": "/input/lines/0"}, "lines", ["b"]),
        ({"op": "copy", "from": "/input/to", "path": "/input/cc"}, "cc", {"name": "ada"}),
        ({"op": "move", "from": "/input/to/name", "path": "/input/to/first"}, "to", {"first": "ada"}),
        ({"op": "test", "path": "/input/amount", "value": 5}, "amount", 5),
        ({"op": "test", "path": "/input/amount", "value": 5.0}, "amount", 5),
        ({"op": "test", "path": "/input/lines", "value": ["a", "b"]}, "lines", ["a", "b"]),
        ({"op": "test", "path": "/input/to", "value": {"name": "ada"}}, "to", {"name": "ada"}),
    ],
)
def test_a_step_changes_one_place(step: dict[str, Any], place: str, expected: Any) -> None:
    before = content()
    after = patched(before, steps(step), most_bytes=MOST_BYTES)["input"]
    assert after[place] == expected
    assert {name: after[name] for name in before["input"] if name in after and name != place} == {
        name: value for name, value in before["input"].items() if name != place
    }
    assert before == content()


def test_what_a_patch_adds_to_one_document_is_not_in_the_next() -> None:
    patch = steps(
        {"op": "add", "path": "/input/seen", "value": []},
        {"op": "copy", "from": "/input/amount", "path": "/input/seen/-"},
    )
    for amount in (5, 6):
        document = {"input": {"amount": amount}}
        assert patched(document, patch, most_bytes=MOST_BYTES)["input"]["seen"] == [amount]


def test_what_is_removed_is_gone() -> None:
    after = patched(content(), steps({"op": "remove", "path": "/input/to"}), most_bytes=MOST_BYTES)
    assert "to" not in after["input"]


@pytest.mark.parametrize(
    ("step", "pointer", "detail"),
    [
        ({"op": "replace", "path": "/input/amuont", "value": 6}, "/input/amuont", "is not there"),
        ({"op": "remove", "path": "/input/lines/2"}, "/input/lines/2", "is not there"),
        ({"op": "remove", "path": "/input/lines/-"}, "/input/lines/-", "is no place in the document"),
        ({"op": "add", "path": "/input/x/y", "value": 6}, "/input/x/y", "is no place in the document"),
        (
            {"op": "add", "path": "/input/to/name/0", "value": 6},
            "/input/to/name/0",
            "is no place in the document",
        ),
        (
            {"op": "add", "path": "/input/lines/3", "value": 6},
            "/input/lines/3",
            "is no place in the document",
        ),
        (
            {"op": "add", "path": "/input/lines/x", "value": 6},
            "/input/lines/x",
            "is no place in the document",
        ),
        ({"op": "test", "path": "/input/amount", "value": True}, "/input/amount", "is not true"),
        ({"op": "test", "path": "/input/lines", "value": ["a"]}, "/input/lines", 'is not ["a"]'),
        ({"op": "test", "path": "/input/lines", "value": ["b", "a"]}, "/input/lines", 'is not ["b", "a"]'),
        (
            {"op": "test", "path": "/input/to", "value": {"nick": "ada"}},
            "/input/to",
            'is not {"nick": "ada"}',
        ),
        ({"op": "test", "path": "/input/to", "value": {"name": "bo"}}, "/input/to", 'is not {"name": "bo"}'),
        ({"op": "test", "path": "/input/amuont", "value": 5}, "/input/amuont", "is not 5"),
        ({"op": "move", "from": "/input/x", "path": "/input/y"}, "/input/x", "is not there"),
        ({"op": "copy", "from": "/input/x", "path": "/input/y"}, "/input/x", "is not there"),
        (
            {"op": "copy", "from": "/input/to", "path": "/input/x/y"},
            "/input/x/y",
            "is no place in the document",
        ),
        (
            {"op": "move", "from": "/input/to", "path": "/input/to/x"},
            "/input/to/x",
            "is no place in the document",
        ),
    ],
)
def test_a_step_that_does_not_fit_names_the_place(step: dict[str, Any], pointer: str, detail: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        patched(content(), steps(step), most_bytes=MOST_BYTES)
    assert [(each.pointer, each.detail) for each in refusal.value.problems] == [(pointer, detail)]


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("step", "pointer"),
    [
        ({"op": "replace", "path": "/key", "value": 6}, "/patch/0/path"),
        ({"op": "replace", "path": "input", "value": 6}, "/patch/0/path"),
        ({"op": "replace", "path": "/input/amount"}, "/patch/0"),
        ({"op": "remove", "path": "/input/amount", "value": 6}, "/patch/0"),
        ({"op": "copy", "path": "/input/amount"}, "/patch/0"),
        ({"op": "add", "path": "/input/amount", "from": "/input/to", "value": 6}, "/patch/0"),
        ({"op": "increase", "path": "/input/amount"}, "/patch/0/op"),
        ({"op": "add", "path": "/input/amount", "value": deep(60)}, "/patch"),
    ],
)
def test_what_is_no_step_is_refused(step: dict[str, Any], pointer: str) -> None:
    assert pointers_of(steps, step) == [pointer]


def copies(number: int, source: str = "/input") -> Patch:
    """Steps that copy a part of the document into itself, each under a name of its own."""
    return steps(*({"op": "copy", "from": source, "path": f"/input/{each}"} for each in range(number)))


def nested(levels: int) -> list[dict[str, Any]]:
    """Steps that nest values, each in the one before: no step has a deep value, and the document is small."""
    return [{"op": "add", "path": "/input/to" + "/a" * (level + 1), "value": {}} for level in range(levels)]


@pytest.mark.parametrize("number", [12, 20, 50])
@pytest.mark.shows("P16")
def test_a_patch_that_doubles_the_document_ends_at_the_step_that_makes_it_too_large(number: int) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        patched(content(), copies(number), most_bytes=MOST_BYTES)
    (problem,) = refusal.value.problems
    assert (problem.pointer, problem.detail) == (
        "/input/4",
        "after this step the document is larger than 1000 bytes",
    )


@pytest.mark.parametrize("op", ["add", "replace"])
def test_values_that_add_up_are_too_large_as_well(op: str) -> None:
    with pytest.raises(InvalidInputError, match="larger than 1000 bytes"):
        patched(content(), steps({"op": op, "path": "/input/amount", "value": "x" * 1_000}), most_bytes=1_000)


def test_steps_that_nest_one_value_in_the_other_end_where_the_document_is_too_deep() -> None:
    with pytest.raises(InvalidInputError, match="after this step the document nests deeper than 48 levels"):
        patched(content(), steps(*nested(50)), most_bytes=100_000)


def test_a_message_too_deep_to_be_copied_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="the document nests deeper than 48 levels"):
        patched({"message": deep(5_000)}, copies(1), most_bytes=100_000)


def test_a_document_that_was_large_before_may_be_changed_and_may_not_grow() -> None:
    smaller = steps({"op": "replace", "path": "/input/amount", "value": 6})
    assert patched(content(), smaller, most_bytes=10)["input"]["amount"] == 6
    with pytest.raises(InvalidInputError, match="larger than"):
        patched(content(), copies(1), most_bytes=10)
