import json
from typing import Any

import pytest

from durable_retry.base.validation import (
    MAX_HEADER_VALUE_CHARS,
    MAX_PATH_CHARS,
    InvalidInputError,
    Problem,
    path_problem,
    pointed_at,
    pointer_problem,
)
from durable_retry.features.outbox.rules.event import Event
from durable_retry.features.outbox.rules.outbox import OutboxMembers
from durable_retry.rules.operations.keys import canonical_json, fingerprint
from durable_retry.rules.operations.request import HttpCall, parse_operation
from tests.support.narrowing import existing

REQUEST: dict[str, Any] = {
    "method": "POST",
    "json": {"amount": 5, "items": [{"id": 1}, {"id": 2}], "a/b": {"~": 0}},
}


def test_the_order_of_keys_does_not_matter() -> None:
    turned = {"json": dict(reversed(REQUEST["json"].items())), "method": "POST"}
    assert fingerprint("d", turned) == fingerprint("d", REQUEST)


def test_the_order_of_a_list_matters() -> None:
    assert fingerprint("d", [1, 2]) != fingerprint("d", [2, 1])


def test_one_number_has_one_form() -> None:
    assert canonical_json([5.0, -0.0, 1.5, 10**20, True]) == "[5,0,1.5,100000000000000000000,true]"
    assert canonical_json(2.0**60) == "1.152921504606847e+18"
    assert canonical_json(-10.0) == "-10"


def test_what_looks_like_a_number_inside_of_a_text_stays() -> None:
    texts = ["5.0", '"5.0,', "\\", '\\"-0.0]', "-0,", "a\n.0,\1\2"]
    assert json.loads(canonical_json({text: [text, 5.0] for text in texts})) == {
        text: [text, 5] for text in texts
    }


@pytest.mark.parametrize("other", [True, "5", 6, None, [5], 5.5])
def test_different_values_differ(other: object) -> None:
    assert fingerprint("d", {"amount": 5}) != fingerprint("d", {"amount": other})


def test_the_target_is_part_of_it() -> None:
    assert fingerprint("dependency a", REQUEST) != fingerprint("dependency b", REQUEST)


def test_only_the_chosen_parts_count() -> None:
    changed = {**REQUEST, "headers": {"x": "y"}}
    assert fingerprint("d", changed, ["/json/amount"]) == fingerprint("d", REQUEST, ["/json/amount"])
    assert fingerprint("d", changed) != fingerprint("d", REQUEST)


def test_the_order_of_pointers_does_not_matter() -> None:
    assert fingerprint("d", REQUEST, ["/json", "/method"]) == fingerprint("d", REQUEST, ["/method", "/json"])


def test_missing_differs_from_null() -> None:
    assert fingerprint("d", {}, ["/x"]) != fingerprint("d", {"x": None}, ["/x"])


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("", [REQUEST]),
        ("/json/items/1/id", [2]),
        ("/json/items/01", []),
        ("/json/items/2", []),
        ("/json/items/-", []),
        ("/json/a~1b/~0", [0]),
        ("/method/0", []),
        ("/nothing", []),
    ],
)
def test_pointers_point_as_rfc_6901_says(pointer: str, found: list[Any]) -> None:
    assert pointed_at(REQUEST, pointer) == found


@pytest.mark.parametrize("pointer", ["", "/", "/a/0", "/a~1b", "/~0"])
def test_a_good_pointer_has_no_problem(pointer: str) -> None:
    assert pointer_problem(pointer) is None


@pytest.mark.parametrize("pointer", ["a", "/~", "/~2", "#/a"])
def test_a_bad_pointer_has_one(pointer: str) -> None:
    assert pointer_problem(pointer) is not None


CONTRACT: dict[str, Any] = {
    "dependency": "payments",
    "request": {"method": "POST", "path": "/charges", "query": {}, "headers": {}, "json": {"amount": 5}},
    "key": "evt-1",
    "correlation_id": "order-42",
    "deadline_seconds": 600,
    "retry": {"max_attempts": 3},
    "on_success": [{"type": "charge.completed", "queue": "charge-events", "data": {"order": 42}}],
}
NO_HEADER_NAME = "is not a header name (RFC 9110 section 5.1), or is longer than 128 characters"
GET = {"method": "GET", "path": "/x"}


def with_request(**changes: Any) -> dict[str, Any]:
    return {"dependency": "payments", "request": GET | changes}


def problems_in(document: Any) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        parse_operation(document)
    return {problem.pointer: problem.detail for problem in caught.value.problems}


def test_the_contracts_own_example_is_valid() -> None:
    request = parse_operation(CONTRACT)
    assert request.dependency == "payments"
    assert existing(request.request).to_json() == CONTRACT["request"]
    assert existing(request.retry).written() == {"max_attempts": 3}
    events = [Event.model_validate(event) for event in CONTRACT["on_success"]]
    assert request.of_features == {"outbox": OutboxMembers(on_success=events)}


def test_a_handler_with_its_input_is_valid() -> None:
    request = parse_operation({"handler": "ship-order", "input": [1, None]})
    assert (request.handler, request.input, request.request) == ("ship-order", [1, None], None)


def test_every_mistake_is_reported_with_its_pointer() -> None:
    document = {
        "dependency": "pay ments",
        "request": {
            "method": "FETCH",
            "path": "http://evil.example",
            "query": {"a": {"b": 1}, "c": [None]},
            "headers": {"Host": "x", "a/b~": "y", "X": "a\r\nb"},
            "jsn": 1,
        },
        "key": "a b",
        "correlation_id": "\n",
        "deadline_seconds": -1,
        "retry": {"max_attempts": 0, "presett": "none", "max_seconds": "5", "respect_retry_after": 1},
        "on_success": [{"type": "x", "queue": "No"}, {"queue": "abc"}, {"type": "x"}, 7],
        "colour": "red",
    }
    assert problems_in(document) == {
        "/dependency": "must be 1 to 128 letters, digits, _, . or -, and not begin with . or -",
        "/request/method": "must be 'GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE' or 'OPTIONS'",
        "/request/path": "must be relative to the dependency's base_url: no scheme, no host",
        "/request/query/a": "must be a string, a number, true, false, or a list of these",
        "/request/query/c": "must be a string, a number, true, false, or a list of these",
        "/request/headers/Host": "may not be set: it is written by the app itself",
        "/request/headers/a~1b~0": NO_HEADER_NAME,
        "/request/headers/X": "may hold visible ASCII characters, spaces and tabs only",
        "/request/jsn": 'is not a known key; did you mean "json"?',
        "/key": "must be 1 to 255 visible ASCII characters",
        "/correlation_id": "must be 1 to 255 characters, with no control character and no space at an end",
        "/deadline_seconds": "must be greater than or equal to 0",
        "/retry/max_attempts": "must be at least 1, or -1 for unlimited",
        "/retry/presett": 'is not a known key; did you mean "preset"?',
        "/retry/max_seconds": "must be a number",
        "/retry/respect_retry_after": "must be true or false",
        "/on_success/0/queue": "must be a storage queue's name: 3 to 63 lower-case letters, digits and "
        "single inner hyphens",
        "/on_success/1/type": "is required",
        "/on_success/2": "needs either queue, or dependency and path",
        "/on_success/3": "must be an object",
        "/colour": "is not a known key",
    }


@pytest.mark.parametrize("document", [None, [], "x", 1])
def test_a_body_is_an_object(document: Any) -> None:
    assert problems_in(document) == {"": "must be an object"}


@pytest.mark.parametrize(
    ("document", "pointers"),
    [
        ({}, {""}),
        ({"dependency": None, "input": 1}, {""}),
        ({"dependency": "d"}, {"/request"}),
        ({"request": GET}, {"/dependency"}),
        (with_request() | {"input": None}, {"/input"}),
        (with_request() | {"handler": "h"}, {"/dependency", "/request"}),
        ({"dependency": "d", "colour": 1}, {"/request", "/colour"}),
    ],
)
def test_an_operation_has_exactly_one_of_two_forms(document: dict[str, Any], pointers: set[str]) -> None:
    assert set(problems_in(document)) == pointers


def test_json_and_body_exclude_each_other() -> None:
    assert problems_in(with_request(json=None, body="x")) == {
        "/request/json": "cannot stand beside body: one of them"
    }


def test_a_json_null_is_a_body_and_a_missing_json_is_none() -> None:
    null = parse_operation(with_request(json=None)).request
    none = parse_operation(with_request()).request
    assert null is not None
    assert none is not None
    assert null.to_json()["json"] is None
    assert "json" not in none.to_json()
    assert HttpCall.model_validate(GET | {"body": "text"}).to_json()["body"] == "text"


def test_methods_and_header_names_are_taken_in_any_case() -> None:
    call = HttpCall.model_validate({"method": "post", "headers": {"X-Thing": "1"}})
    assert call.to_json() == {"method": "POST", "path": "", "query": {}, "headers": {"x-thing": "1"}}
    assert set(problems_in(with_request(method=7))) == {"/request/method"}


def test_a_request_is_a_post_unless_it_says_otherwise() -> None:
    operation = parse_operation({"dependency": "payments", "request": {"path": "/charges"}})
    assert existing(operation.request).to_json() == HttpCall(method="POST", path="/charges").to_json()


@pytest.mark.parametrize("other", ["x-key", "X_Key"])
def test_one_header_in_two_spellings_is_a_mistake(other: str) -> None:
    assert set(problems_in(with_request(headers={"X-Key": "1", other: "2"}))) == {"/request/headers"}


def test_query_values_may_be_lists_of_scalars() -> None:
    query = {"a": [1, "b", True], "c": 1.5, "d": False}
    assert existing(parse_operation(with_request(query=query)).request).query == query


HOP_BY_HOP = ["Connection", "keep-alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Proxy-Connection"]
OUR_OWN = ["Host", "Content-Length", "Expect", "Authorization", "Proxy-Authorization", "Cookie"]


@pytest.mark.parametrize("name", [*HOP_BY_HOP, *OUR_OWN, "", "a b", "é"])
def test_headers_that_a_caller_may_not_set(name: str) -> None:
    assert set(problems_in(with_request(headers={name: "x"}))) == {f"/request/headers/{name}"}


@pytest.mark.parametrize(
    "value", ["a\nb", "a\rb", "\x00", "é", " x", "x ", "x" * (MAX_HEADER_VALUE_CHARS + 1)]
)
def test_header_values_that_are_refused(value: str) -> None:
    assert set(problems_in(with_request(headers={"X": value}))) == {"/request/headers/X"}


@pytest.mark.parametrize(
    "path", ["", "/", "/a/b", "a/b.json", "/a..b/...", "/ü", "/a%20b", "/x:y", "/a;v=1", "/a//b"]
)
def test_paths_below_the_base_are_fine(path: str) -> None:
    assert path_problem(path) is None


ABSOLUTE = ["//evil", "http:/x", "HTTP://x", "javascript:x", "/%2f/evil", "%2f%2fevil"]
CLIMBING = ["/..", "/a/../b", "..", "/.", "/a/%2e%2e/b", "/%2E./b", "/%252e%252e/b", "/..;x/b", "/a%3f/../b"]
ODD = ["/a\\b", "/%5c..", "/a\nb", "/%0d%0aX", "/\x7f", "/%00", "/a?b=1", "/a#b", " /a", "/a "]


@pytest.mark.parametrize("path", [*ABSOLUTE, *CLIMBING, *ODD, "/" * (MAX_PATH_CHARS + 1)])
def test_paths_that_could_escape_are_refused(path: str) -> None:
    assert path_problem(path) is not None


def test_an_event_goes_to_a_queue_or_to_a_webhook() -> None:
    webhook = {"type": "x", "dependency": "hooks", "path": "/in"}
    assert Event.model_validate(webhook).to_json() == webhook | {"data": None}


@pytest.mark.parametrize(
    "target", [{}, {"queue": "abc", "path": "/x"}, {"path": "/x"}, {"dependency": "d"}, {"queue": None}]
)
def test_an_event_has_exactly_one_target(target: dict[str, Any]) -> None:
    assert set(problems_in(CONTRACT | {"on_success": [{"type": "x"} | target]})) == {"/on_success/0"}


def test_sizes_are_limited() -> None:
    many = {f"n{number}": "x" for number in range(200)}
    document = with_request(query=many, headers=many) | {"on_success": [{"type": "x", "queue": "abc"}] * 21}
    assert set(problems_in(document)) == {"/request/query", "/request/headers", "/on_success"}


def test_the_guess_looks_at_the_model_that_holds_the_key() -> None:
    assert problems_in(CONTRACT | {"retri": {}})["/retri"] == 'is not a known key; did you mean "retry"?'
    events = [{"type": "x", "queue": "abc", "dato": 1}]
    assert problems_in(CONTRACT | {"on_success": events}) == {
        "/on_success/0/dato": 'is not a known key; did you mean "data"?'
    }


def test_an_error_lists_its_problems_in_its_text() -> None:
    error = InvalidInputError([Problem("/a", "is required"), Problem("", "is bad")])
    assert str(error) == "/a: is required; /: is bad"
    assert error.problems[0].to_json() == {"pointer": "/a", "detail": "is required"}
