from typing import Any

import pytest

from engine.dead_letter import of_operation
from engine.dead_letter_edit import ReplayBody, changes_between, edited_operation, is_masked
from engine.problem import InvalidInputError
from engine.validation import validated
from tests.dead_letter_samples import an_entry
from tests.operation_stage import START


def edits(**body: Any) -> ReplayBody:
    return validated(ReplayBody, body)


def edited(body: ReplayBody, **changes: Any) -> Any:
    return edited_operation(of_operation("dl-1", an_entry("op-1", **changes), START), body)


def pointers(body: ReplayBody, **changes: Any) -> list[str]:
    with pytest.raises(InvalidInputError) as refusal:
        edited(body, **changes)
    return [problem.pointer for problem in refusal.value.problems]


def test_without_edits_the_request_is_what_it_was() -> None:
    request = edited(edits(), correlation_id="order-42", on_success=({"type": "t", "queue": "done"},))
    assert request.request.to_json() == {
        "method": "POST",
        "path": "/charges",
        "query": {},
        "headers": {},
        "json": {"amount": 5},
    }
    assert request.correlation_id == "order-42"
    assert [event.queue for event in request.on_success] == ["done"]


def test_edited_keys_replace_theirs_and_the_others_stay() -> None:
    request = edited(edits(request={"path": "/refunds"})).request
    assert (request.method, request.path, request.body_json) == ("POST", "/refunds", {"amount": 5})


@pytest.mark.parametrize("body", [{"body": "text"}, {"json": None}])
def test_a_body_of_one_form_takes_the_place_of_the_other(body: dict[str, Any]) -> None:
    form = edited(edits(request=body)).request.to_json()
    assert {name: form[name] for name in ("json", "body") if name in form} == body


def test_an_edited_request_is_validated_like_a_new_one() -> None:
    assert pointers(edits(request={"path": "http://elsewhere", "metod": "GET"})) == [
        "/request/path",
        "/request/metod",
    ]


def test_a_handler_takes_an_input_and_no_request() -> None:
    handler = {"handler": "ship", "request": None, "input": {"id": 1}}
    assert edited(edits(input=None), **handler).input is None
    assert edited(edits(), **handler).input == {"id": 1}
    assert pointers(edits(request={}), **handler) == ["/request"]


def test_a_request_takes_neither_input_nor_message() -> None:
    assert pointers(edits(input=1, message="x")) == ["/input", "/message"]


def test_a_credential_that_was_not_kept_has_to_be_given_again() -> None:
    request = {"method": "GET", "path": "/", "query": {}, "headers": {"x-api-key": "a", "x-trace": "1"}}
    # What is kept has the mask in its place, which must not be sent.
    assert pointers(edits(), request=request) == ["/request/headers/x-api-key"]
    given = edited(edits(request={"headers": {"X-Api-Key": "b"}}), request=request)
    assert given.request.headers == {"X-Api-Key": "b"}


def test_a_masked_operation_is_told_from_a_whole_one() -> None:
    masked = {"request": {"headers": {"x-api-key": "***"}}}
    assert is_masked(masked)
    assert not is_masked({"request": {"headers": {"x-trace": "1"}}})
    assert not is_masked({"request": None})


def test_key_and_dependency_cannot_be_edited() -> None:
    with pytest.raises(InvalidInputError) as refusal:
        edits(key="other", dependency="other")
    assert {problem.pointer for problem in refusal.value.problems} == {"/key", "/dependency"}


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({"a": 1}, {"a": 1}, ()),
        ({"a": 1}, {"a": 2}, ({"pointer": "/a", "before": 1, "after": 2},)),
        ({"a": 1}, {}, ({"pointer": "/a", "before": 1},)),
        ({}, {"a/b": None}, ({"pointer": "/a~1b", "after": None},)),
        ({"a": [1]}, {"a": [1, 2]}, ({"pointer": "/a", "before": [1], "after": [1, 2]},)),
        ({"a": 1}, {"a": True}, ({"pointer": "/a", "before": 1, "after": True},)),
        ({"a": {"b": 1}}, {"a": 1}, ({"pointer": "/a", "before": {"b": 1}, "after": 1},)),
    ],
)
def test_changes_are_listed_place_by_place(before: Any, after: Any, changes: Any) -> None:
    assert changes_between(before, after) == changes


def test_changes_have_an_end() -> None:
    assert len(changes_between({}, {str(number): number for number in range(500)})) == 100
