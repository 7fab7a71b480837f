"""Codecs that are made of a class's fields: forms, defaults, missing and unknown members."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from math import inf
from typing import Annotated, Any, Literal, Self

import pytest

from durable_retry.engine.base.json_forms import Form, JsonRow, JsonShape, MsInstant, UnreadableRecordError
from durable_retry.engine.base.trace_context import MAX_TRACESTATE_CHARS, TraceContext, trace_in

NOON = datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=UTC)

type Size = Literal["small", "large"]


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Row:
    """Brings its own form, which is no object."""

    number: int

    def to_json(self) -> list[int]:
        return [self.number]

    @classmethod
    def from_json(cls, row: list[int]) -> Self:
        return cls(row[0])


@dataclass(frozen=True, slots=True)
class Cells(JsonRow):
    name: str
    at: MsInstant
    note: str | None = None
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class Inner(JsonShape):
    colour: Colour = Colour.RED


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
    payload: Any = None
    row: Row | None = None
    stamp: MsInstant | None = None
    control: Annotated[Colour, Form(name="hand")] = Colour.RED
    added: str | None = None
    cached: Annotated[bool, Form(is_stored=False)] = False


@dataclass(frozen=True, slots=True)
class Numbers(JsonShape):
    seconds: float = 1.5
    count: int = 3


FULL = Outer(
    name="a",
    at=NOON,
    size="large",
    until=NOON,
    colour=Colour.BLUE,
    inner=Inner(Colour.BLUE),
    inners=(Inner(), Inner(Colour.BLUE)),
    words=("x", "y"),
    by_name={"n": (1, 2)},
    payload={"deep": [None, 1.5]},
    row=Row(7),
    stamp=NOON,
    control=Colour.BLUE,
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
    "payload": {"deep": [None, 1.5]},
    "row": [7],
    "stamp": 1_795_262_400_250,
    "hand": "blue",
}


def test_a_record_is_stored_by_the_types_of_its_fields_in_their_order() -> None:
    assert FULL.to_json() == STORED
    assert list(FULL.to_json()) == list(STORED)
    assert type(FULL.to_json()["colour"]) is str


def test_what_was_stored_is_read_back() -> None:
    assert Outer.from_json(STORED) == FULL


def test_members_that_are_missing_take_their_defaults() -> None:
    old = {"name": "a", "at": STORED["at"]}
    assert Outer.from_json(old) == Outer(name="a", at=NOON)


def test_members_that_it_does_not_know_are_ignored() -> None:
    assert Outer.from_json({**STORED, "newer": 1, "inner": {"colour": "blue", "newer": 2}}) == FULL


def test_a_member_whose_default_is_none_is_left_out_while_it_is_none() -> None:
    empty = Outer(name="a", at=NOON)
    stored = empty.to_json()
    assert not {"until", "colour", "payload", "row", "stamp", "added"} & stored.keys()
    assert Outer.from_json(stored) == empty
    assert Outer.from_json({**stored, "until": None, "payload": None}) == empty
    some = Outer(name="a", at=NOON, added="b")
    assert Outer.from_json(some.to_json()) == some


def test_null_where_a_value_must_be_takes_the_default() -> None:
    assert Outer.from_json({**STORED, "inner": None, "words": None}).inner == Inner()
    assert Outer.from_json({**STORED, "inner": None, "words": None}).words == ()
    assert Numbers.from_json({"seconds": None, "count": None}) == Numbers()


def test_a_field_that_is_not_stored_keeps_its_default() -> None:
    assert "cached" not in Outer(name="a", at=NOON, cached=True).to_json()
    assert Outer.from_json({**STORED, "cached": True}).cached is False


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"at": "yesterday"}, "at: .*yesterday"),
        ({"at": "2026-11-21T12:00:00"}, "at: .*no offset"),
        ({"at": 5}, "at: .*: 5"),
        ({"colour": "green"}, "colour: .*'green'"),
        ({"size": "huge"}, "size: .*'huge'"),
        ({"inner": {"colour": "green"}}, "inner/colour: .*'green'"),
        ({"inners": [{}, {"colour": "green"}]}, "inners/1/colour: .*'green'"),
        ({"by_name": {"n": ["x"]}}, "by_name/n/0: .*'x'"),
        ({"row": {}}, "row: cannot be read"),
        ({"stamp": "noon"}, "stamp: cannot be read: .*'noon'"),
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


def test_a_field_that_is_not_stored_needs_a_default() -> None:
    @dataclass(frozen=True)
    class Broken(JsonShape):
        lost: Annotated[int, Form(is_stored=False)]

    with pytest.raises(TypeError, match=r"Broken\.lost"):
        Broken(1).to_json()


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
    context = TraceContext.read(given)
    assert context is not None
    assert (context.traceparent, context.trace_id, context.tracestate) == (kept, TRACE_ID, "")


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
        (None, ""),
        ("", ""),
        (3, ""),
        ("line\nbreak", ""),
        ("v=" + "x" * MAX_TRACESTATE_CHARS, ""),
    ],
)
def test_a_tracestate_that_cannot_be_used_does_not_cost_the_trace(given: object, kept: str) -> None:
    context = TraceContext.read(PARENT, given)
    assert context is not None
    assert context.tracestate == kept


@pytest.mark.parametrize("context", [TraceContext(PARENT), TraceContext(PARENT, "vendor=1"), None])
def test_it_survives_json(context: TraceContext | None) -> None:
    assert TraceContext.from_json(None if context is None else context.to_json()) == context


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
