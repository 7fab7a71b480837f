import json
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.masking import MASKED, Masking
from durable_retry.base.names import DeadLetterReason
from durable_retry.base.validation import InvalidInputError, validated
from durable_retry.features.outbox.rules.event import Event
from durable_retry.features.outbox.rules.outbox import OutboxMembers
from durable_retry.features.replay.rules import (
    Prepared,
    ReplayBody,
    changes_between,
    edited_operation,
    is_masked,
    members_of_replay,
    missing_credentials,
    needs_new_key,
    not_replayed,
    replayed_operation,
    whole_edits,
)
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.config.dependency import Targets, UnknownTargetError
from durable_retry.rules.dead_letters.record import (
    KeptDeadLetter,
    Replay,
    WrongStatusError,
    archived,
    dead_letter_id_of,
    failed_again,
    of_message,
    of_operation,
)
from durable_retry.rules.dead_letters.record import replayed as with_replay
from tests.support.builders import NOON, an_entry
from tests.support.feature_parts import followed_by
from tests.support.mistakes import pointers_of
from tests.support.narrowing import existing

TARGETS = Targets(
    parse_config('[dependencies.payments]\nbase_url = "https://payments.example.com"', {}).dependencies,
    {},
    (),
)
MOST_BYTES = 65_536
LATER = NOON + timedelta(hours=1)
RECORD = of_operation(an_entry("op-1"), NOON)
REPLAYED = with_replay(RECORD, Replay(operation_id="op-1", requested_at=NOON, operation={}))


def edits(**body: Any) -> ReplayBody:
    return validated(ReplayBody, body)


def edited(body: ReplayBody, **changes: Any) -> Any:
    return edited_operation(of_operation(an_entry("op-1", **changes), NOON), body)


def pointers(body: ReplayBody, **changes: Any) -> list[str]:
    return pointers_of(edited, body, **changes)


def test_without_edits_the_request_is_what_it_was() -> None:
    request = edited(edits(), correlation_id="order-42", **followed_by({"type": "t", "queue": "done"}))
    assert request.request.to_json() == {
        "method": "POST",
        "path": "/charges",
        "query": {},
        "headers": {},
        "json": {"amount": 5},
    }
    assert request.correlation_id == "order-42"
    assert request.of_features == {"outbox": OutboxMembers(on_success=[Event(type="t", queue="done")])}


def test_edited_keys_replace_theirs_and_the_others_stay() -> None:
    request = edited(edits(request={"path": "/refunds"})).request
    assert (request.method, request.path, request.body_json) == ("POST", "/refunds", {"amount": 5})


@pytest.mark.parametrize("body", [{"body": "text"}, {"json": None}])
def test_a_body_of_one_form_takes_the_place_of_the_other(body: dict[str, Any]) -> None:
    form = edited(edits(request=body)).request.to_json()
    assert {name: form[name] for name in ("json", "body") if name in form} == body


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"json": {"a": 1}}, None),
        ({"body": "<b/>"}, "text/xml"),
        ({"path": "/refunds"}, "text/xml"),
        ({"json": 1, "headers": {"Content-Type": "application/vnd.api+json"}}, "application/vnd.api+json"),
    ],
)
def test_json_in_place_of_a_text_does_not_keep_the_type_of_the_text(
    change: dict[str, Any], kind: str | None
) -> None:
    request = {
        "method": "POST",
        "path": "/",
        "query": {},
        "headers": {"content-type": "text/xml"},
        "body": "<a/>",
    }
    form = edited(edits(request=change), request=request).request.to_json()
    assert form["headers"].get("content-type") == kind


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


def test_every_mistake_of_an_edit_is_told_at_once() -> None:
    stored = {"method": "POST", "path": "/", "query": {}, "headers": {"x-api-key": "***"}}
    both = edits(request={"path": "..", "metod": "GET"}, input=1)
    assert sorted(pointers(both, request=stored)) == [
        "/input",
        "/request/headers/x-api-key",
        "/request/metod",
        "/request/path",
    ]


@pytest.mark.parametrize("headers", [5, None, ["a"], {"a": 5}])
def test_edited_headers_of_another_form_are_a_mistake(headers: Any) -> None:
    (pointer,) = pointers(edits(request={"headers": headers}))
    assert pointer.startswith("/request/headers")


def test_a_credential_that_was_not_kept_has_to_be_given_again() -> None:
    request = {"method": "GET", "path": "/", "query": {}, "headers": {"x-api-key": "a", "x-trace": "1"}}
    # What is kept has the mask in its place, which must not be sent.
    assert pointers(edits(), request=request) == ["/request/headers/x-api-key"]
    given = edited(edits(request={"headers": {"X-Api-Key": "b"}}), request=request)
    assert given.request.headers == {"X-Api-Key": "b"}


def test_a_masked_operation_is_distinguished_from_a_whole_one() -> None:
    masked = {"request": {"headers": {"x-api-key": "***"}}}
    assert is_masked(masked)
    assert not is_masked({"request": {"headers": {"x-trace": "1"}}})
    assert not is_masked({"request": None})


def test_an_edit_of_what_was_shown_keeps_what_stands_behind_its_masks() -> None:
    entry = an_entry("op-1", request={"method": "POST", "path": "/", "json": {"pin": "1234", "n": 1}})
    record = of_operation(entry, NOON)
    body = ReplayBody(request={"json": {"pin": "***", "n": 2}}, note="n")
    edits = whole_edits(body, record, Masking(), most_bytes=MOST_BYTES)
    assert edits.request == {"json": {"pin": "1234", "n": 2}}
    assert (edits.edits, edits.note) == (frozenset({"request"}), "n")


def test_an_edit_that_nests_without_end_is_refused_before_it_is_walked() -> None:
    record = of_operation(an_entry("op-1"), NOON)
    deep = json.loads("[" * 3_000 + "]" * 3_000)
    with pytest.raises(InvalidInputError, match=r"/request/json/0.* nests deeper than 48 levels"):
        whole_edits(ReplayBody(request={"json": deep}), record, Masking(), most_bytes=MOST_BYTES)


def test_an_edit_of_what_is_not_there_is_left_to_validation() -> None:
    record = of_operation(an_entry("op-1"), NOON)
    assert whole_edits(ReplayBody(message="***"), record, Masking(), most_bytes=MOST_BYTES).message == "***"


def test_key_and_dependency_cannot_be_edited() -> None:
    assert set(pointers_of(edits, key="other", dependency="other")) == {"/key", "/dependency"}


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


def test_changes_below_long_names_have_an_end_too() -> None:
    name = "x" * 60_000
    assert len(changes_between({name: {}}, {name: {str(number): number for number in range(500)}})) == 4


CALL = {"method": "POST", "path": "/a", "headers": {"a": "***"}, "json": {"n": 1}}


@pytest.mark.parametrize(
    ("changed", "is_new"),
    [
        ({}, False),
        ({"headers": {"a": "secret"}}, False),
        ({"json": {"n": 1.0}}, False),
        ({"json": {"n": 2}}, True),
        ({"path": "/b"}, True),
    ],
)
def test_another_call_gets_a_new_key_and_other_headers_do_not(
    changed: dict[str, Any], *, is_new: bool
) -> None:
    before, after = {"request": CALL, "input": None}, {"request": {**CALL, **changed}, "input": None}
    assert needs_new_key(edits(), before, after) is is_new
    assert needs_new_key(edits(downstream_key="new"), before, after)
    assert not needs_new_key(edits(downstream_key="same"), before, after)


def test_another_input_gets_a_new_key() -> None:
    assert needs_new_key(edits(), {"input": {"n": 1}}, {"input": {"n": 2}})


def replayed(body: ReplayBody, targets: Targets = TARGETS, **changes: Any) -> Prepared:
    record = of_operation(an_entry("op-1", **changes), NOON)
    return replayed_operation(record, body, targets, LATER, new_suffix="new")


def test_a_replay_without_edits_keeps_key_and_steps_and_counts_its_time_from_now() -> None:
    prepared = replayed(edits(), steps_run=3)
    operation = prepared.operation
    assert (operation.sent_key, operation.replay_of, operation.steps_run) == (
        "key-op-1",
        dead_letter_id_of(an_entry("op-1")["operation"]),
        3,
    )
    assert (operation.created_at, prepared.changes) == (LATER, ())


def test_a_replay_of_another_call_has_a_key_of_its_own_and_shows_the_change() -> None:
    prepared = replayed(edits(request={"path": "/refunds"}), steps_run=3)
    assert (prepared.operation.sent_key, prepared.operation.steps_run) == ("key-op-1.new", None)
    assert prepared.operation.key == "key-op-1"
    assert [change["pointer"] for change in prepared.changes] == ["/request/path"]


def test_a_replay_under_a_configuration_without_its_dependency_is_refused() -> None:
    with pytest.raises(UnknownTargetError):
        replayed(edits(), Targets({}, {}, ()))


def with_steps(record: KeptDeadLetter, *written: dict[str, Any], masking: Masking = MASKED) -> ReplayBody:
    return whole_edits(edits(patch=list(written)), record, masking, most_bytes=MOST_BYTES)


def test_a_patch_changes_a_part_of_the_request_and_leaves_the_rest() -> None:
    body = with_steps(RECORD, {"op": "replace", "path": "/request/json/amount", "value": 6})
    request = existing(edited_operation(RECORD, body).request)
    assert (request.path, request.body_json) == ("/charges", {"amount": 6})


def test_a_patch_can_remove_a_part_of_the_request() -> None:
    body = with_steps(RECORD, {"op": "remove", "path": "/request/json"})
    assert "json" not in edited(body).request.to_json()


def test_a_patch_changes_a_part_of_an_input() -> None:
    record = of_operation(an_entry("op-1", request=None, handler="ship", input={"n": 1, "m": 2}), NOON)
    body = with_steps(record, {"op": "replace", "path": "/input/n", "value": 5})
    assert body.input == {"n": 5, "m": 2}


def a_message(text: str) -> KeptDeadLetter:
    return of_message(
        text,
        source="queue",
        message_id="m",
        reason=DeadLetterReason.VALIDATION_FAILED,
        detail="",
        now=NOON,
    )


def test_a_patch_leads_into_a_message_that_is_json_and_replaces_any_other() -> None:
    moved = {"op": "move", "from": "/message/depandency", "path": "/message/dependency"}
    assert with_steps(a_message('{"depandency": "é"}'), moved).message == '{"dependency": "é"}'
    replaced = {"op": "replace", "path": "/message", "value": "{}"}
    assert with_steps(a_message("not json"), replaced).message == "{}"
    assert with_steps(a_message("5"), replaced).message == "{}"


def test_a_mask_that_a_patch_leaves_in_its_place_keeps_the_value_and_one_that_it_copies_is_refused() -> None:
    record = of_operation(an_entry("op-1", request=None, handler="h", input={"pin": 1234, "n": 1}), NOON)
    assert with_steps(record, {"op": "replace", "path": "/input/n", "value": 2}).input == {
        "pin": 1234,
        "n": 2,
    }
    assert pointers_of(with_steps, record, {"op": "copy", "from": "/input/pin", "path": "/input/n"}) == [
        "/input/n"
    ]
    with pytest.raises(InvalidInputError):
        with_steps(record, {"op": "test", "path": "/input/pin", "value": 1234})


@pytest.mark.parametrize(
    ("step", "pointer"),
    [
        ({"op": "remove", "path": "/request"}, "/request"),
        ({"op": "add", "path": "/input", "value": 1}, "/input"),
        ({"op": "replace", "path": "/request", "value": 1}, "/request"),
    ],
)
def test_a_patch_keeps_the_kind_of_content(step: dict[str, Any], pointer: str) -> None:
    assert pointers_of(with_steps, RECORD, step) == [pointer]


def test_a_patch_and_edited_parts_are_not_given_together() -> None:
    both = edits(patch=[{"op": "remove", "path": "/request/json"}], request={})
    with pytest.raises(InvalidInputError, match="beside edited parts"):
        whole_edits(both, RECORD, MASKED, most_bytes=MOST_BYTES)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"category": "ambiguous"}, {"since": "2026-11-21T12:00:00Z", "attempt": 1}),
        ({"category": "ambiguous", "error": None}, None),
        (
            {"category": "deadline_exceeded", "acted_before": True},
            {"since": "2026-11-21T12:00:00Z", "attempt": 1},
        ),
        ({"category": "deadline_exceeded"}, None),
        ({"category": "malformed"}, None),
    ],
)
def test_a_replay_asks_first_where_nobody_knows_whether_the_latest_attempt_happened(
    changes: dict[str, Any], part: dict[str, Any] | None
) -> None:
    lookup = 'base_url = "http://x"\nlookup = { path = "/c/{key}", found = "/id" }\norder_on_failure = "skip"'
    dependencies = parse_config(f"[dependencies.payments]\n{lookup}", {}).dependencies
    parts = replayed(edits(), Targets(dependencies, {}, ()), **changes).operation.parts or {}
    assert parts.get("lookup") == part
    assert "order" not in parts


def test_a_replay_has_members_of_the_parts_that_keep_some() -> None:
    events = {"on_success": [{"type": "paid", "queue": "q", "data": {}}]}
    parts: dict[str, dict[str, Any]] = {"debounce": {"key": "a"}, "outbox": events, "gone": {"n": 1}}
    assert members_of_replay(parts) == events


def test_a_replay_that_could_not_be_started_leaves_no_trace() -> None:
    assert not_replayed(REPLAYED) == RECORD


def test_a_replay_that_failed_again_was_started_whatever_is_thought_of_it() -> None:
    failed = failed_again(REPLAYED, "dl-9")
    assert not_replayed(failed) == failed


@pytest.mark.parametrize("record", [RECORD, archived(REPLAYED, NOON)])
def test_what_is_not_replayed_has_no_replay_to_undo(record: KeptDeadLetter) -> None:
    with pytest.raises(WrongStatusError):
        not_replayed(record)


def test_a_masked_credential_is_missing_and_any_other_header_is_not() -> None:
    (problem,) = missing_credentials({"headers": {"X-Api-Key": "***", "Accept": "text/plain"}})
    assert problem.pointer == "/request/headers/X-Api-Key"
    assert list(missing_credentials({"headers": {"X-Api-Key": "c2VjcmV0", "Accept": "***"}})) == []
    assert list(missing_credentials(None)) == []
