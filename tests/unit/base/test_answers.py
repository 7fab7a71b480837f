import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import ValidationError

from durable_retry.base.answers import Answer, marked, read_or, reason_of
from durable_retry.rules.dead_letters.record import Status, unreadable_record
from durable_retry.rules.operations.completion import unreadable_document
from durable_retry.rules.operations.status import checked_document, running_document
from tests.support.builders import NOON, an_operation


class Shown(Answer):
    name: str
    count: int
    note: str | None = None


@dataclass
class Kept:
    name: str
    secret: str = "s"


def test_an_answer_takes_the_members_that_a_record_has_and_what_is_given_beside_it() -> None:
    assert Shown.taken_from(Kept("a"), count=2).to_json() == {"name": "a", "count": 2, "note": None}
    assert Shown.taken_from(Kept("a"), count=2, name="b").name == "b"


def test_a_member_that_neither_has_is_refused() -> None:
    with pytest.raises(ValidationError, match="count"):
        Shown.taken_from(Kept("a"))


@pytest.mark.parametrize("name", ["a", "é", "half a pair: \ud800"])
def test_the_text_of_an_answer_says_what_its_document_says(name: str) -> None:
    answer = Shown(name=name, count=10**30)
    assert json.loads(answer.to_text()) == answer.to_json() == {"name": name, "count": 10**30, "note": None}


WHOLE: dict[str, Any] = {"name": "x", "at": "2026-11-21T12:00:00Z", "more": 1}


def deep() -> Any:
    return json.loads("[" * 100_000)


@pytest.mark.parametrize(
    "read",
    [
        lambda: json.loads("the worker died"),
        deep,
        lambda: WHOLE["missing"],
        lambda: list[Any]()[0],
        lambda: WHOLE["name"].missing,
        lambda: "" + WHOLE["more"],
        lambda: 10**400 * 1.0,
    ],
)
def test_whatever_is_wrong_with_a_document_leads_to_what_stands_for_it(read: Callable[[], Any]) -> None:
    assert read_or(read, lambda reason: [reason])[0]
    assert read_or(lambda: 7, lambda reason: reason) == 7


def test_an_error_of_storage_is_not_taken_for_a_document_that_cannot_be_read() -> None:
    def away() -> int:
        raise OSError("storage is away")

    with pytest.raises(OSError, match="away"):
        read_or(away, lambda _: 0)


def test_a_reason_is_one_line_with_an_end() -> None:
    assert reason_of(ValueError("two\nlines")) == "ValueError: two lines"
    assert reason_of(KeyError()) == "KeyError"
    assert len(reason_of(ValueError("x" * 10_000))) == 300
    assert marked("why") == {"unreadable": "why"}


def test_what_stands_for_an_operation_is_a_status_document_itself() -> None:
    for given in ({}, None, {"text": "x"}, {"operation": {"key": 7, "dependency": "payments"}}):
        checked_document(unreadable_document("op-1", given, NOON, dead_letter_id="", detail="why"))
    checked_document(running_document(an_operation(), None))


def test_what_stands_for_a_dead_letter_has_what_its_row_says_beside_the_document() -> None:
    row = {"status": "archived", "reason": "PoisonMessage", "created_at": "2026-11-21T12:00:00Z"}
    record = unreadable_record("dl-1", "why", **row)
    assert (record.status, record.created_at) == (Status.ARCHIVED, NOON)
    assert unreadable_record("dl-1", "why", status=7, reason=None, created_at="x").status is Status.OPEN
    assert "unreadable" not in record.to_json()
