import re
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.validation import InvalidInputError
from durable_retry.rules.operations.envelope import parse_key
from durable_retry.rules.operations.keys import (
    EXPLICIT_SCOPE,
    EnvelopeName,
    KeyCompletion,
    KeyRecord,
    Life,
    Met,
    apart_ms,
    complete,
    envelope_key,
    expire,
    fields_name,
    is_live,
    is_operation_id,
    operation_id_for,
    removes_itself,
    source_name,
)
from durable_retry.rules.operations.operation import run_number
from durable_retry.rules.operations.request import parse_operation
from tests.support.builders import NOON, after
from tests.support.mistakes import pointers_of

DAY = timedelta(days=1)
BODY: dict[str, Any] = {
    "dependency": "payments",
    "request": {"method": "GET", "json": {"order": 1, "note": "a"}},
}


def is_a_key(key: str) -> bool:
    """Holds a key to what a caller may choose, and so to what the header downstream carries."""
    return parse_operation(BODY | {"key": key}).key == key


def test_what_joins_source_and_id_is_no_part_of_either() -> None:
    names = [EnvelopeName("a#b", "c"), EnvelopeName("a", "b#c"), EnvelopeName("a%23b", "c")]
    assert len({envelope_key(name).key for name in names}) == 3


def test_a_long_name_is_hashed() -> None:
    key = source_name("kafka", "orders", "x" * 300).key
    assert key.startswith("sha256-")
    assert is_a_key(key)


def test_names_of_different_kinds_never_meet() -> None:
    scopes = {
        EXPLICIT_SCOPE,
        envelope_key(EnvelopeName("s", "i")).scope,
        source_name("queue", "operations", "i").scope,
        source_name("queue", "other", "i").scope,
        fields_name(BODY, ["/dependency"]).scope,
    }
    assert len(scopes) == 5


def test_fields_name_a_payload_whatever_their_order() -> None:
    again = {"request": {"json": {"note": "b", "order": 1.0}, "method": "GET"}, "dependency": "payments"}
    pointers = ["/request/json/order", "/dependency"]
    assert fields_name(BODY, pointers) == fields_name(again, reversed(pointers))
    assert fields_name(BODY, pointers) != fields_name(BODY, ["/request/json/order"])
    assert fields_name(BODY, ["/request/json/note"]) != fields_name(again, ["/request/json/note"])


def test_a_field_that_is_missing_is_reported() -> None:
    assert pointers_of(fields_name, BODY, ["/request/json/order", "/request/json/nothing"]) == [
        "/request/json/nothing"
    ]


DONE = {"status": "succeeded", "operation_id": "op-1"}
DEAD = {"status": "dead_lettered", "operation_id": "op-1"}


def completed(record: KeyRecord | None = None, *, at: float = 0, **changes: Any) -> KeyRecord:
    wanted: dict[str, Any] = {
        "run": run_number(after(at)),
        "fingerprint": "f",
        "document": DONE,
        "now": after(at),
    }
    return complete(record, KeyCompletion(**({"ttl_seconds": 60} | wanted | changes)))


COMPLETED = completed()


def test_the_id_is_the_same_everywhere() -> None:
    assert operation_id_for("explicit", "evt-1") == "op-j4ou3b324etvaioxnislgrfopf5ppob3"


def test_the_id_is_short_and_safe_in_a_url() -> None:
    assert re.fullmatch(r"op-[a-z2-7]{32}", operation_id_for("s", "k" * 255))


def test_scopes_and_keys_cannot_be_shifted_into_each_other() -> None:
    assert operation_id_for("ab", "c") != operation_id_for("a", "bc")


def test_an_operations_id_is_distinguished_from_other_ids() -> None:
    assert is_operation_id(operation_id_for("s", "k"))
    others = ["", "op-", "batch-abc", "saga-abc", "op-a@b", "op-a.b", "@x@op-a", "op-a\n"]
    assert [text for text in others if is_operation_id(text)] == []


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("evt-1", "evt-1"),
        ('"evt-1"', "evt-1"),
        (' "a\\"b\\\\c" ', 'a"b\\c'),
        ('a"b', 'a"b'),
        ("x" * 255, "x" * 255),
    ],
)
def test_a_key_is_a_quoted_string_or_bare(header: str, key: str) -> None:
    assert parse_key(header) == key


@pytest.mark.parametrize(
    "header", ["", '""', "a b", '"a b"', '"a', 'x"\x7f', "é", "x" * 256, '"a\\n"', '"a";p=1']
)
def test_a_key_that_is_neither_is_refused(header: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_key(header)


def test_a_run_number_is_the_instant_of_its_acceptance_and_grows_whatever_the_clock_says() -> None:
    first = run_number(NOON)
    assert first == round(NOON.timestamp() * 1000)
    assert run_number(after(1), first) == first + 1_000
    assert run_number(after(-5), first) == first + 1


@pytest.mark.parametrize(
    ("seconds", "ttl_seconds", "met"),
    [
        (0, DAY.total_seconds(), Met.SAME),
        (-599, DAY.total_seconds(), Met.SAME),
        (599, DAY.total_seconds(), Met.SAME),
        (-600, DAY.total_seconds(), Met.EARLIER),
        (600, DAY.total_seconds(), Met.LATER),
        (-1, 2, Met.SAME),
        (-2, 2, Met.EARLIER),
        (2, 2, Met.LATER),
    ],
)
def test_starts_of_one_key_that_are_accepted_soon_after_each_other_are_of_one_life(
    seconds: float, ttl_seconds: float, met: Met
) -> None:
    life = Life(owner="op-1", run=run_number(NOON), apart_ms=apart_ms(ttl_seconds))
    assert life.meet(run_number(after(seconds))) is met
    assert life.meet(run_number(after(seconds)), "op-1") is met


def test_the_trace_of_a_replay_is_never_of_the_same_life() -> None:
    life = Life(owner="op-1", run=run_number(NOON), apart_ms=apart_ms(60))
    assert life.meet(run_number(after(1)), "op-1.dl-1") is Met.LATER
    assert life.meet(run_number(after(-1)), "op-1.dl-1") is Met.EARLIER


def test_completing_keeps_the_document_for_its_time() -> None:
    assert (COMPLETED.document, COMPLETED.expires_at) == (DONE, after(60))
    assert COMPLETED.fingerprint == "f"


@pytest.mark.parametrize("seconds", [0, -5])
def test_what_a_run_or_an_earlier_one_says_again_of_its_end_changes_nothing(seconds: float) -> None:
    again = completed(COMPLETED, at=30, run=run_number(after(seconds)), document=DEAD, fingerprint="g")
    assert again is COMPLETED


def test_the_end_of_a_later_run_takes_the_place_of_the_one_before() -> None:
    record = completed(completed(document=DEAD), at=30, fingerprint="g")
    assert (record.document, record.fingerprint, record.expires_at) == (DONE, "g", after(90))


@pytest.mark.shows("W6")
def test_a_record_expires_when_its_time_is_over_and_not_before() -> None:
    assert (is_live(COMPLETED, after(59)), expire(COMPLETED, now=after(59))) == (True, COMPLETED)
    assert (is_live(COMPLETED, after(60)), expire(COMPLETED, now=after(60))) == (False, None)
    assert (is_live(None, NOON), expire(None, now=NOON)) == (False, None)


def test_a_record_stands_for_one_request_or_for_any_where_that_is_not_known() -> None:
    assert COMPLETED.stands_for("f")
    assert not COMPLETED.stands_for("g")
    assert completed(fingerprint="").stands_for("g")


def test_json_round_trips() -> None:
    assert KeyRecord.from_json(COMPLETED.to_json()) == COMPLETED


@pytest.mark.parametrize(
    ("ttl", "age", "history_for", "expected"),
    [
        (DAY, timedelta(0), 7 * DAY, False),
        (30 * DAY, timedelta(0), 7 * DAY, False),
        (DAY, timedelta(0), None, True),
        (timedelta(minutes=59), timedelta(0), 7 * DAY, True),
        (timedelta(hours=1), timedelta(0), 7 * DAY, False),
        (DAY, 7 * DAY - timedelta(hours=1), 7 * DAY, False),
        (DAY, 7 * DAY - timedelta(minutes=59), 7 * DAY, True),
    ],
)
def test_a_record_ends_itself_where_retention_would_not(
    ttl: timedelta, age: timedelta, history_for: timedelta | None, expected: object
) -> None:
    record = KeyRecord(
        run=run_number(NOON - age), fingerprint="f", expires_at=NOON + ttl, document={"status": "succeeded"}
    )
    assert removes_itself(record, NOON, history_for) is expected
