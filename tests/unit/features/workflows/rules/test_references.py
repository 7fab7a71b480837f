from typing import Any

import pytest

from durable_retry.base.validation import InvalidInputError, Problem, validated
from durable_retry.features.workflows.rules.references import (
    MissingResultError,
    Reference,
    SagaRequest,
    filled,
    is_in_reference,
    references_in,
    references_of,
    refuse_unfilled,
)
from durable_retry.rules.dead_letters.record import of_operation
from durable_retry.rules.retry.history import PastAttempt
from tests.support.builders import NOON, an_operation


def test_a_reference_names_a_step_and_a_place_in_its_result() -> None:
    assert Reference.parse("charge#/json/id") == Reference("charge", "/json/id")
    assert Reference.parse("charge#") == Reference("charge", "")


@pytest.mark.parametrize("text", ["", "charge", "#/json", "charge#json", 5, None, ["charge#"]])
def test_what_is_no_reference_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match='write "step#/json/id"'):
        Reference.parse(text)


def test_references_are_found_wherever_they_stand() -> None:
    body = {"a": [1, {"$result": "x#"}], "b/c": {"$result": 5}, "d": {"$result": "y#", "more": 1}}
    assert list(references_in(body, "input")) == [(("input", "a", 1), "x#"), (("input", "b/c"), 5)]


def test_references_are_replaced_by_values() -> None:
    body = {"a": [1, {"$result": "x#/n"}], "b": "text"}
    assert filled(body, lambda reference: {"from": reference.step}) == {"a": [1, {"from": "x"}], "b": "text"}


def test_a_value_that_is_missing_is_an_error_at_its_place() -> None:
    def nothing(reference: Reference) -> Any:
        raise MissingResultError(reference.step)

    with pytest.raises(MissingResultError, match=r"^/input/a~1b/1: x$"):
        filled({"a/b": [0, {"$result": "x#/n"}]}, nothing, "input")


def test_two_steps_cannot_have_one_name() -> None:
    step, other = {"name": "charge", "operation": {}}, {"name": "ship", "operation": {}}
    assert references_of(a_saga_of(step, other)) == ({}, [])
    _, problems = references_of(a_saga_of(step, other, step))
    assert problems == [Problem("/steps/2/name", "is the name of an earlier step")]


def a_saga_of(*steps: dict[str, Any]) -> SagaRequest:
    return validated(SagaRequest, {"steps": list(steps)})


def refers(text: Any) -> dict[str, Any]:
    return {"dependency": "d", "request": {"method": "POST", "json": {"id": {"$result": text}}}}


def test_the_results_that_a_saga_needs_are_those_it_refers_to() -> None:
    request = a_saga_of(
        {"name": "reserve", "operation": {}, "compensation": refers("reserve#/json/id")},
        {"name": "charge", "operation": {"handler": "h", "input": {"$result": "reserve#"}}},
        {"name": "ship", "operation": {"request": "?"}, "compensation": refers("charge#/value")},
    )
    assert references_of(request) == ({"reserve": ("", "/json/id"), "charge": ("/value",)}, [])


def test_references_that_lead_nowhere_are_all_reported() -> None:
    request = a_saga_of(
        {"name": "reserve", "operation": refers("reserve#/json/id")},
        {"name": "charge", "operation": refers("ship#"), "compensation": refers("charge")},
        {"name": "ship", "operation": {}},
    )
    _, problems = references_of(request)
    assert [(each.pointer, each.detail[:30]) for each in problems] == [
        ("/steps/0/operation/request/json/id", "'reserve' is no step before it"),
        ("/steps/1/operation/request/json/id", "'ship' is no step before it"),
        ("/steps/1/compensation/request/json/id", "'charge' is no reference: writ"),
    ]


def test_a_place_is_in_a_reference_or_beside_it() -> None:
    document = {"handler": "h", "input": {"a/b": [1, {"$result": "x#"}], "c": 1}}
    within = {"/input/a~1b/1", "/input/a~1b/1/$result"}
    beside = {
        "/input",
        "/input/a~1b",
        "/input/a~1b/0",
        "/input/a~1b/7",
        "/input/c",
        "/input/c/d",
        "",
        "/nowhere/1",
    }
    assert {pointer for pointer in within | beside if is_in_reference(document, pointer)} == within


REFERRING = {"method": "POST", "path": "/c", "query": {}, "headers": {}}
REFERRING |= {"json": {"for": [{"$result": "reserve#/json/id"}], "by": {"$result": "who#"}}}


def left_in(attempts: tuple[dict[str, Any], ...] = (), **changes: Any) -> list[str]:
    """Places of what is refused in the replay of a saga's step that made these attempts."""
    try:
        operation = an_operation(**({"source": "saga", "request": REFERRING} | changes))
        entry = {"operation": operation.to_json(), "attempts": list(attempts), "category": "malformed"}
        entry |= {"reason": "ValidationFailed", "detail": "a result was not there"}
        refuse_unfilled(of_operation(entry, NOON), operation)
    except InvalidInputError as refusal:
        return sorted(problem.pointer for problem in refusal.problems)
    return []


def test_a_step_whose_references_were_never_filled_is_not_replayed_as_it_is() -> None:
    assert left_in() == ["/request/json/by", "/request/json/for/0"]
    handled: dict[str, Any] = {"request": None, "handler": "ship", "input": {"$result": "reserve#"}}
    assert left_in(**handled) == ["/input"]


def test_what_has_run_holds_values_whatever_they_look_like() -> None:
    assert left_in(attempts=(PastAttempt(number=1, started_at=NOON, duration_ms=1.0).to_json(),)) == []


def test_a_step_is_replayed_with_values_in_place_of_its_references() -> None:
    assert left_in(request={**REFERRING, "json": {"for": ["r-1"], "by": "who"}}) == []
