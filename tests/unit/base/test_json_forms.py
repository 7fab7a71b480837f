import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import inf
from typing import Annotated, Any, Literal

import pytest

from durable_retry.base.json_forms import (
    DIGITS,
    NOT_STORED,
    JsonRow,
    JsonShape,
    MsInstant,
    UnreadableRecordError,
    from_microseconds,
    from_newest_first,
    from_rfc3339,
    microseconds,
    newest_first,
    oldest_first,
    union_from_json,
)
from durable_retry.base.trace_context import MAX_TRACESTATE_CHARS, TraceContext, trace_in
from tests.support.builders import NOON
from tests.support.narrowing import existing

LATER = NOON + timedelta(microseconds=1)


def test_keys_sort_by_the_microsecond_and_have_one_length() -> None:
    assert newest_first(LATER) < newest_first(NOON)
    assert oldest_first(NOON) < oldest_first(LATER)
    assert {len(key(NOON)) for key in (newest_first, oldest_first)} == {DIGITS}


def test_stored_keys_never_change() -> None:
    instant = from_microseconds(1_700_000_000_123_456)
    assert oldest_first(instant) == "01700000000123456"
    assert newest_first(instant) == "98299999999876543"


def test_an_instant_comes_back_from_its_microseconds() -> None:
    assert from_microseconds(microseconds(LATER)) == LATER
    assert from_newest_first(newest_first(LATER)) == LATER


def test_microseconds_after_the_year_9999_are_no_instant() -> None:
    with pytest.raises(ValueError, match="is no instant of the years 1 to 9999"):
        from_microseconds(10**18)


STORED_AT = datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=UTC)

type Size = Literal["small", "large"]


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Cells(JsonRow):
    name: str
    at: MsInstant
    note: str | None = None
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class Inner(JsonShape):
    colour: Colour = Colour.RED


@dataclass(frozen=True, slots=True)
class Whole(JsonShape):
    count: int
    kind: Literal["whole"] = "whole"


@dataclass(frozen=True, slots=True)
class Part(JsonShape):
    share: float
    kind: Literal["part"] = "part"


type Amount = Whole | Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer(JsonShape):
    name: str
    at: datetime
    size: Size = "small"
    until: datetime | None = None
    colour: Colour | None = None
    inner: Inner = field(default_factory=Inner)
    inners: tuple[Inner, ...] = ()
    words: tuple[str, ...] = ()
    by_name: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)
    payload: Any = None
    row: Cells | None = None
    rows: tuple[tuple[int, Cells], ...] = ()
    amount: Amount | None = None
    stamp: MsInstant | None = None
    added: str | None = None
    cached: Annotated[bool, NOT_STORED] = False


@dataclass(frozen=True, slots=True)
class Numbers(JsonShape):
    seconds: float = 1.5
    count: int = 3


FULL = Outer(
    name="a",
    at=STORED_AT,
    size="large",
    until=STORED_AT,
    colour=Colour.BLUE,
    inner=Inner(Colour.BLUE),
    inners=(Inner(), Inner(Colour.BLUE)),
    words=("x", "y"),
    by_name={"n": (1, 2)},
    counts=Counter({3: 2}),
    payload={"deep": [None, 1.5]},
    row=Cells("x", STORED_AT),
    rows=((3, Cells("y", STORED_AT, mark="z")),),
    amount=Part(0.5),
    stamp=STORED_AT,
)
STORED = {
    "name": "a",
    "at": "2026-11-21T12:00:00.250000Z",
    "size": "large",
    "until": "2026-11-21T12:00:00.250000Z",
    "colour": "blue",
    "inner": {"colour": "blue"},
    "inners": [{"colour": "red"}, {"colour": "blue"}],
    "words": ["x", "y"],
    "by_name": {"n": [1, 2]},
    "counts": {"3": 2},
    "payload": {"deep": [None, 1.5]},
    "row": ["x", 1_795_262_400_250],
    "rows": [[3, ["y", 1_795_262_400_250, None, "z"]]],
    "amount": {"share": 0.5, "kind": "part"},
    "stamp": 1_795_262_400_250,
}


def test_a_record_is_stored_by_the_types_of_its_fields_in_their_order() -> None:
    assert FULL.to_json() == STORED
    assert list(FULL.to_json()) == list(STORED)
    assert type(FULL.to_json()["colour"]) is str


def test_what_was_stored_is_read_back() -> None:
    assert Outer.from_json(STORED) == FULL


def test_members_that_are_missing_take_their_defaults() -> None:
    least = {"name": "a", "at": STORED["at"]}
    assert Outer.from_json(least) == Outer(name="a", at=STORED_AT)


def test_members_that_it_does_not_know_are_ignored() -> None:
    assert Outer.from_json({**STORED, "newer": 1, "inner": {"colour": "blue", "newer": 2}}) == FULL


def test_a_member_is_left_out_while_it_is_none() -> None:
    empty = Outer(name="a", at=STORED_AT)
    stored = empty.to_json()
    assert not {"until", "colour", "payload", "row", "stamp", "added"} & stored.keys()
    assert Outer.from_json(stored) == empty
    assert Outer.from_json({**stored, "until": None, "payload": None}) == empty
    assert empty.to_answer().items() >= (stored | {"until": None, "payload": None}).items()
    some = Outer(name="a", at=STORED_AT, added="b")
    assert Outer.from_json(some.to_json()) == some


def test_a_field_that_is_not_stored_keeps_its_default() -> None:
    assert "cached" not in Outer(name="a", at=STORED_AT, cached=True).to_json()
    assert Outer.from_json({**STORED, "cached": True}).cached is False


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"at": "yesterday"}, "at: .*yesterday"),
        ({"at": "2026-11-21T12:00:00"}, "at: .*with an offset"),
        ({"at": 5}, "at: .*: 5"),
        ({"colour": "green"}, "colour: .*'green'"),
        ({"size": "huge"}, "size: .*'huge'"),
        ({"inner": {"colour": "green"}}, "inner/colour: .*'green'"),
        ({"inners": [{}, {"colour": "green"}]}, "inners/1/colour: .*'green'"),
        ({"by_name": {"n": ["x"]}}, "by_name/n/0: .*'x'"),
        ({"row": 7}, "row: .*: 7"),
        ({"row": ["x", "noon"]}, "row/at: .*'noon'"),
        ({"rows": [[3]]}, "it lacks 'rows/0/1'"),
        ({"amount": {"kind": "none"}}, "amount: .*'none'"),
        ({"amount": {"kind": "part"}}, "it lacks 'amount/part/share'"),
        ({"stamp": "noon"}, "stamp: .*'noon'"),
        ({"words": None}, "words: .*: None"),
    ],
)
def test_a_value_of_another_type_is_refused_by_class_and_member(
    changes: dict[str, Any], message: str
) -> None:
    for read in (Outer.from_json, lambda stored: Outer.from_json_text(json.dumps(stored))):
        with pytest.raises(UnreadableRecordError, match=f"^this is no stored Outer: {message}"):
            read({**STORED, **changes})


@pytest.mark.parametrize("stored", [None, [], "text", 7])
def test_what_is_no_object_is_refused(stored: Any) -> None:
    with pytest.raises(UnreadableRecordError, match="this is no stored Outer: it: "):
        Outer.from_json(stored)


def test_the_text_is_read_as_what_it_holds() -> None:
    assert Outer.from_json_text(json.dumps(STORED)) == FULL


def test_half_a_surrogate_pair_is_read_from_text() -> None:
    stored = {**STORED, "name": "\ud800", "payload": {"\ud800": "\ud800"}}
    assert Outer.from_json_text(json.dumps(stored)) == Outer.from_json(stored)


def test_a_number_is_written_as_it_was_stored() -> None:
    for number in (10, 10.0, 0.1, inf):
        written = Numbers.from_json({"seconds": number}).to_json()["seconds"]
        assert (written, type(written)) == (number, type(number))


def test_a_missing_member_without_a_default_is_named() -> None:
    with pytest.raises(ValueError, match="no stored Outer: it lacks 'name'"):
        Outer.from_json({"at": STORED["at"]})


@pytest.mark.parametrize("amount", [Whole(3), Part(0.5)])
def test_one_of_several_classes_is_told_by_its_kind(amount: Amount) -> None:
    assert union_from_json(Amount, amount.to_json()) == amount


@pytest.mark.parametrize("stored", [{"count": 3}, {"count": 3, "kind": "half"}, None])
def test_what_is_none_of_several_classes_is_refused(stored: Any) -> None:
    with pytest.raises(UnreadableRecordError, match=r"^this is no stored Amount: it"):
        union_from_json(Amount, stored)


TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (PARENT, PARENT),
        (f" {PARENT} ", PARENT),
        (PARENT.replace("-01", "-00"), PARENT.replace("-01", "-00")),
        (f"cc{PARENT[2:]}", f"cc{PARENT[2:]}"),
        (f"cc{PARENT[2:]}-what-the-future-brings", f"cc{PARENT[2:]}"),
    ],
)
def test_a_valid_traceparent_is_kept(given: str, kept: str) -> None:
    context = existing(TraceContext.read(given))
    assert (context.traceparent, context.trace_id, context.tracestate) == (kept, TRACE_ID, None)


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        7,
        "nonsense",
        PARENT.upper(),
        PARENT[:-1],
        f"{PARENT}-more",
        f"{PARENT}x",
        f"ff{PARENT[2:]}",
        f"cc{PARENT[2:]}.more",
        PARENT.replace(TRACE_ID, "0" * 32),
        PARENT.replace("b7ad6b7169203331", "0" * 16),
    ],
)
def test_anything_else_is_no_trace(given: object) -> None:
    assert TraceContext.read(given) is None


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("vendor=1,other=2", "vendor=1,other=2"),
        (None, None),
        ("", None),
        (3, None),
        ("line\nbreak", None),
        ("v=" + "x" * MAX_TRACESTATE_CHARS, None),
    ],
)
def test_a_tracestate_that_cannot_be_used_does_not_cost_the_trace(given: object, kept: str | None) -> None:
    assert existing(TraceContext.read(PARENT, given)).tracestate == kept


@pytest.mark.parametrize("context", [TraceContext(PARENT), TraceContext(PARENT, "vendor=1")])
def test_it_survives_json(context: TraceContext) -> None:
    assert TraceContext.from_json(context.to_json()) == context


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({"traceparent": PARENT, "tracestate": "v=1"}, TraceContext(PARENT, "v=1")),
        ({"Diagnostic-Id": PARENT}, TraceContext(PARENT)),
        ({"Diagnostic-Id": "|of-an-older-form."}, None),
        ({}, None),
        (None, None),
        (["traceparent"], None),
    ],
)
def test_the_properties_of_a_message_hold_the_senders_trace(
    properties: object, found: TraceContext | None
) -> None:
    assert trace_in(properties) == found


@pytest.mark.parametrize("row", [["one", 250], ["one", 250, "two"]])
def test_a_row_is_its_members_in_their_order(row: list[Any]) -> None:
    cells = Cells.from_json(row)
    assert (cells.name, cells.note) == ("one", row[2] if row[2:] else None)
    assert cells.to_json() == row


def test_what_a_newer_version_appended_to_a_row_is_ignored() -> None:
    assert Cells.from_json(["one", 250, "two", None, "three"]).to_json() == ["one", 250, "two"]


def test_a_member_that_is_left_out_before_another_one_is_null_in_a_row() -> None:
    cells = Cells("one", Cells.from_json(["one", 250]).at, mark="three")
    assert cells.to_json() == ["one", 250, None, "three"]
    assert Cells.from_json(cells.to_json()) == cells


@pytest.mark.parametrize(("row", "problem"), [(["one"], "it lacks 'at'"), ([1, 250], "name: ")])
def test_a_row_that_is_none_says_what_is_wrong(row: list[Any], problem: str) -> None:
    with pytest.raises(UnreadableRecordError, match=f"this is no stored Cells: {problem}"):
        Cells.from_json(row)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-11-21T12:00:00Z", NOON),
        ("2026-11-21t12:00:00z", NOON),
        ("2026-11-21T13:00:00+01:00", NOON),
        ("2026-11-21T12:00:00-00:00", NOON),
        ("2026-11-21T12:00:00.000001999999Z", LATER),
        ("2026-11-21T12:00:00.0Z", NOON),
        ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC)),
        ("2016-12-31t15:59:60.25-08:00", datetime(2017, 1, 1, microsecond=250_000, tzinfo=UTC)),
        ("1990-12-31T15:59:60-08:00", datetime(1991, 1, 1, tzinfo=UTC)),
    ],
)
def test_every_rfc_3339_instant_is_read(text: str, instant: datetime) -> None:
    assert from_rfc3339(text) == instant


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T12:00:00",
        "2026-11-21T12:00Z",
        "2026-11-21T12Z",
        "2026-11-21",
        "2026-W47-6T12:00:00Z",
        "20261121T120000Z",
        "2026-11-21 12:00:00Z",
        "2026-11-21T12:00:00,5Z",
        "2026-11-21T12:00:00.Z",
        "2026-11-21T12:00:00+01",
        "2026-11-21T12:00:00+0100",
        "2026-11-21T12:00:00+24:00",
        "2026-11-21T12:00:00+01:60",
        "2026-11-21T12:00:00+01:00:30",
        "2026-11-21T24:00:00Z",
        "2026-11-21T12:60:00Z",
        "2026-11-21T12:00:60Z",
        "2026-11-21T23:59:60+01:00",
        "2026-11-21T12:00:61Z",
        "2026-02-29T12:00:00Z",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:60Z",
        "٢٠٢٦-11-21T12:00:00Z",
        " 2026-11-21T12:00:00Z",
        "2026-11-21T12:00:00Z\n",
        "",
    ],
)
def test_nothing_else_is_read_as_an_instant(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_rfc3339(text)
