import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.masking import MASKED
from durable_retry.base.names import DeadLetterReason
from durable_retry.rules.dead_letters.document import DeadLetterDocument
from durable_retry.rules.dead_letters.record import (
    MAX_MESSAGE_CHARS,
    MAX_NOTES,
    NAME_CHARS,
    Deliveries,
    FullError,
    KeptDeadLetter,
    Replay,
    Status,
    WrongStatusError,
    archived,
    failed_again,
    failure_group,
    noted,
    of_message,
    of_operation,
    replayed,
    restored,
    shortened,
)
from durable_retry.rules.operations.keys import fingerprint
from tests.support.builders import NOON, an_entry
from tests.support.narrowing import existing


def group(error: str | None, status_code: int | None = 400, dependency: str | None = "payments") -> str:
    return failure_group(
        dependency=dependency,
        category="malformed",
        reason="RejectedByDependency",
        status_code=status_code,
        error=error,
    )


@pytest.mark.parametrize("message", [None, "m" * 20_000])
def test_what_storage_refuses_is_shortened(message: str | None) -> None:
    operation = None if message is not None else an_entry("op-1", input="x" * 20_000)["operation"]
    whole = replace(of_operation(an_entry("op-1"), NOON), operation=operation, message=message)
    short = shortened(whole, "EntityTooLarge")
    assert (short.operation, len(short.message or ""), short.is_cut) == (None, 10_000, True)
    assert "EntityTooLarge" in short.detail


def test_ids_and_numbers_do_not_make_a_new_group() -> None:
    first = group("order 42 (7f1c9a52-3c1f-4f7e-9a52-3c1f4f7e9a52) at 10.0.0.1:80 by usr_8ab7c9d0e1f2")
    second = group("order 7 (00000000-0000-0000-0000-000000000000) at 10.0.0.22:8080 by usr_1bb7c9d0e1f3")
    assert first == second


def test_different_causes_make_different_groups() -> None:
    groups = {
        group("no amount"),
        group("no currency"),
        group(None),
        group("no amount", 422),
        group("no amount", None),
    }
    assert len(groups) == 5
    assert group("x", dependency=None) != group("x")


def test_a_group_is_stable() -> None:
    assert group("no amount") == "g-d390a7bd9ffd11fb"


REPLAY = Replay(operation_id="op-1", requested_at=NOON, operation={"operation_id": "op-1"}, note="again")


def a_record(**changes: Any) -> KeptDeadLetter:
    return of_operation(an_entry("op-1", **changes), NOON)


def shown_of(record: KeptDeadLetter) -> dict[str, Any]:
    return DeadLetterDocument.of(record, MASKED).to_json()


def a_message(text: str = "not json") -> KeptDeadLetter:
    reason = DeadLetterReason.MALFORMED_JSON
    return of_message(text, source="queue", message_id="m-1", reason=reason, detail="no", now=NOON)


@pytest.mark.parametrize("record", [a_record(), a_message(), archived(replayed(a_record(), REPLAY), NOON)])
def test_the_stored_form_reads_back(record: KeptDeadLetter) -> None:
    assert KeptDeadLetter.from_json(record.to_json()) == record


def test_what_is_shown_of_an_operation_is_its_request_and_not_its_policy() -> None:
    shown = shown_of(a_record())
    assert shown["request"]["path"] == "/charges"
    assert "operation" not in shown
    assert "message" not in shown


def test_what_is_shown_of_a_handler_is_its_input() -> None:
    shown = shown_of(a_record(handler="ship", request=None, input={"id": 1}))
    assert (shown["handler"], shown["input"]) == ("ship", {"id": 1})


def test_what_is_shown_of_a_message_is_its_text() -> None:
    shown = shown_of(a_message())
    assert (shown["message"], shown["operation_id"], shown["dependency"]) == ("not json", None, None)


def test_a_shown_replay_does_not_hold_its_operation() -> None:
    (shown,) = shown_of(replayed(a_record(), REPLAY))["replays"]
    assert "operation" not in shown


def test_credentials_of_the_caller_are_not_kept() -> None:
    request = {"method": "GET", "path": "/", "query": {}, "headers": {"X-Api-Key": "c2VjcmV0"}}
    record = a_record(request=request, fingerprint=None)
    assert "c2VjcmV0" not in str(record.to_json())
    assert existing(record.operation)["fingerprint"] == fingerprint("dependency payments", request)


def test_the_first_failure_is_the_first_attempt_or_the_end_without_one() -> None:
    later = NOON + timedelta(hours=1)
    entry = an_entry("op-1")
    assert of_operation(entry, later).first_failed_at == NOON
    assert of_operation(entry | {"attempts": []}, later).first_failed_at == later


def test_ids_in_an_error_do_not_make_another_group() -> None:
    assert a_record(error="no order 17").group == a_record(error="no order 4211").group
    assert a_record(error="no order 17").group != a_record(error="no stock 17").group


def test_archive_and_restore_lead_back_to_where_it_was() -> None:
    for record in (a_record(), replayed(a_record(), REPLAY)):
        away = archived(record, NOON)
        assert (away.status, away.archived_at) == (Status.ARCHIVED, NOON)
        assert restored(away) == record


@pytest.mark.parametrize(
    "act",
    [
        lambda: replayed(replayed(a_record(), REPLAY), REPLAY),
        lambda: replayed(archived(a_record(), NOON), REPLAY),
        lambda: archived(archived(a_record(), NOON), NOON),
        lambda: restored(a_record()),
    ],
)
def test_what_a_status_does_not_allow_is_refused(act: Any) -> None:
    with pytest.raises(WrongStatusError):
        act()


def test_a_failed_replay_is_noted_at_the_latest_one() -> None:
    linked = failed_again(replayed(a_record(), REPLAY), "dl-9")
    assert [replay.dead_letter_id for replay in linked.replays] == ["dl-9"]
    assert failed_again(a_record(), "dl-9") == a_record()


def test_notes_have_an_end() -> None:
    full = replace(a_record(), notes=({"text": "x", "at": ""},) * MAX_NOTES)
    with pytest.raises(FullError):
        noted(full, "one more", NOON)


def test_notes_are_kept_in_order_with_their_time() -> None:
    record = noted(noted(a_record(), "first", NOON), "second", NOON + timedelta(hours=1))
    assert [note["text"] for note in record.notes] == ["first", "second"]
    assert record.notes[1]["at"] == "2026-11-21T13:00:00Z"


def test_a_row_of_a_list_repeats_the_beginning_of_its_names_as_ascii() -> None:
    record = of_operation(an_entry("op-1", correlation_id="é" * 400, limit_key="kunde-ß"), NOON)
    row = record.listed
    assert json.loads(row["names"])["correlation_id"] == "é" * NAME_CHARS
    assert json.loads(row["limit_key"]) == "kunde-ß"
    assert all(text.isascii() for text in row.values())
    assert row["reason"] == record.reason
    assert "limit_key" not in of_operation(an_entry("op-1"), NOON).listed


@pytest.mark.parametrize(("chars", "is_cut"), [(MAX_MESSAGE_CHARS, False), (MAX_MESSAGE_CHARS + 1, True)])
def test_a_message_over_the_limit_says_that_it_was_cut(chars: int, is_cut: bool) -> None:  # noqa: FBT001 - a parameter
    assert a_message("x" * chars).is_cut is is_cut


def test_why_a_message_was_refused_is_kept_without_its_secrets() -> None:
    detail = "/input/login: Value error, Login(password='x1') is not known"
    reason = DeadLetterReason.VALIDATION_FAILED
    record = of_message("{}", source="queue", message_id="m-1", reason=reason, detail=detail, now=NOON)
    assert record.detail == "/input/login: Value error, Login(password='***') is not known"


def test_deliveries_say_how_many_there_were_and_when_as_far_as_it_is_known() -> None:
    assert str(Deliveries(4)) == "deliveries: 4"
    known = Deliveries(4, first_at=NOON, last_at=NOON)
    assert str(known) == "deliveries: 4, the first at 2026-11-21T12:00:00Z, the last at 2026-11-21T12:00:00Z"
