"""References to the results of earlier steps of a saga."""

from typing import Any

import pytest

from durable_retry.engine.references import MissingResultError, Reference, filled, references_in


def test_a_reference_names_a_step_and_a_place_in_its_result() -> None:
    assert Reference.parse("charge#/json/id") == Reference("charge", "/json/id")
    assert Reference.parse("charge#") == Reference("charge", "")


@pytest.mark.parametrize("text", ["", "charge", "#/json", "charge#json", 5, None, ["charge#"]])
def test_what_is_no_reference_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match='write "step#/json/id"'):
        Reference.parse(text)


def test_references_are_found_wherever_they_stand() -> None:
    body = {"a": [1, {"$result": "x#"}], "b/c": {"$result": 5}, "d": {"$result": "y#", "more": 1}}
    assert sorted(references_in(body, "/input"), key=str) == [("/input/a/1", "x#"), ("/input/b~1c", 5)]


def test_references_are_replaced_by_values() -> None:
    body = {"a": [1, {"$result": "x#/n"}], "b": "text"}
    assert filled(body, lambda reference: {"from": reference.step}) == {"a": [1, {"from": "x"}], "b": "text"}


def test_a_value_that_is_missing_is_an_error() -> None:
    def nothing(reference: Reference) -> Any:
        raise MissingResultError(reference.step)

    with pytest.raises(MissingResultError, match="x"):
        filled([{"$result": "x#/n"}], nothing)
