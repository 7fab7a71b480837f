from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from durable_retry.features.debounce.rules import (
    MEMBERS,
    Debounce,
    DebounceMembers,
    DebouncePlace,
    DebounceRequest,
    Series,
    arrive,
    begin,
    debounce_outcome,
    forget,
    withdraw,
)
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.request import Part, parse_operation
from tests.support.builders import NOON, PAYMENTS, after
from tests.support.narrowing import existing


def asking(name: str, at: float, seconds: float = 10.0) -> DebounceRequest:
    return DebounceRequest(operation_id=f"op-{name}", accepted_at=after(at), seconds=seconds)


def joined(*requests: DebounceRequest) -> tuple[Series, DebouncePlace]:
    series, place = arrive(None, requests[0])
    for request in requests[1:]:
        series, place = arrive(series, request)
    return series, place


def test_the_first_one_waits_for_its_seconds() -> None:
    series, place = joined(asking("a", 0))
    assert place == DebouncePlace(due_at=after(10))
    assert (series.operation_id, series.began_at, series.is_over) == ("op-a", NOON, False)


def test_a_later_one_replaces_it_and_waits_anew() -> None:
    series, place = joined(asking("a", 0), asking("b", 4))
    assert place == DebouncePlace(due_at=after(14), replaces="op-a")
    assert begin(series, asking("a", 0)) == (series, DebouncePlace(due_at=after(10), replaced_by="op-b"))
    begun, place = begin(series, asking("b", 4))
    assert (place.begins, place.replaced_by, begun.is_over) == (True, None, True)


def test_an_earlier_one_that_joins_late_is_replaced_also_when_the_later_one_has_begun() -> None:
    series, _ = joined(asking("b", 4))
    assert arrive(series, asking("a", 0)) == (series, DebouncePlace(due_at=after(10), replaced_by="op-b"))
    begun, _ = begin(series, asking("b", 4))
    assert arrive(begun, asking("a", 0)) == (begun, DebouncePlace(due_at=after(10), replaced_by="op-b"))


@pytest.mark.parametrize(
    ("at", "began_at", "due_at"), [(40.0, 0.0, 50.0), (70.0, 0.0, 80.0), (71.0, 71.0, 81.0)]
)
def test_one_that_was_terminated_by_hand_does_not_spoil_the_next_series(
    at: float, began_at: float, due_at: float
) -> None:
    series, place = joined(asking("a", 0), asking("b", at))
    assert place == DebouncePlace(due_at=after(due_at), replaces="op-a")
    assert series.began_at == after(began_at)
    # It is replaced, should it be resumed.
    assert begin(series, asking("a", 0))[1].replaced_by == "op-b"


def test_what_comes_after_the_begin_is_new() -> None:
    series, _ = joined(asking("a", 0))
    begun, _ = begin(series, asking("a", 0))
    series, place = arrive(begun, asking("b", 3))
    assert place == DebouncePlace(due_at=after(13))
    assert series.began_at == after(3)


def test_a_stream_without_a_gap_begins_after_ten_times_the_seconds() -> None:
    series, place = joined(*(asking(f"{number}", number * 9) for number in range(12)))
    assert place == DebouncePlace(due_at=after(100), replaces="op-10")
    series, place = arrive(series, asking("late", 100))
    assert (place, series.is_over) == (
        DebouncePlace(due_at=after(100), replaces="op-11", begins=True),
        True,
    )
    _, place = arrive(series, asking("next", 100.5))
    assert place == DebouncePlace(due_at=after(110.5))


def test_a_stream_without_a_gap_begins_after_the_maximum_that_the_latest_one_brings() -> None:
    series, _ = joined(*(asking(f"{number}", number * 9) for number in range(4)))
    _, place = arrive(series, replace(asking("last", 35), max_seconds=40.0))
    assert place.due_at == after(40)
    _, place = arrive(series, replace(asking("last", 35), max_seconds=30.0))
    assert (place.due_at, place.begins) == (after(30), True)


def test_repeated_messages_change_nothing() -> None:
    series, place = joined(asking("a", 0))
    assert arrive(series, asking("a", 0)) == (series, place)
    begun, place = begin(series, asking("a", 0))
    assert begin(begun, asking("a", 0)) == (begun, place)
    assert arrive(begun, asking("a", 0)) == (begun, DebouncePlace(due_at=after(10), begins=True))


def test_an_operation_that_is_submitted_again_does_not_replace_itself() -> None:
    _, place = joined(asking("a", 0), asking("a", 5))
    assert place == DebouncePlace(due_at=after(15))


def test_in_one_instant_the_ids_decide() -> None:
    _, place = joined(asking("b", 0), asking("a", 0))
    assert place.replaced_by == "op-b"


def test_one_whose_state_was_lost_begins_all_the_same() -> None:
    begun, place = begin(None, asking("a", 0))
    assert (begun.operation_id, begun.is_over, place) == (
        "op-a",
        True,
        DebouncePlace(due_at=after(10), begins=True),
    )
    later, place = begin(begun, asking("b", 5))
    assert (later.operation_id, place.begins) == ("op-b", True)


def test_one_that_was_cancelled_ends_its_series() -> None:
    series, _ = joined(asking("a", 0))
    assert withdraw(None, asking("a", 0)) is None
    assert withdraw(series, asking("b", 1)) == series
    left = existing(withdraw(series, asking("a", 0)))
    assert arrive(left, asking("b", 90))[1] == DebouncePlace(due_at=after(100))


def test_a_series_is_forgotten_once_it_is_over_and_nothing_came() -> None:
    series, _ = joined(asking("a", 0))
    assert forget(series, asking("a", 0), after(9)) == series
    begun, _ = begin(series, asking("a", 0))
    assert forget(begun, asking("a", 0), after(9)) is None
    later, _ = arrive(begun, asking("b", 20))
    assert forget(later, asking("a", 0), after(99)) == later
    assert forget(None, asking("a", 0), after(9)) is None


def test_a_series_that_was_withdrawn_before_it_came_is_forgotten_after_its_time() -> None:
    assert withdraw(None, asking("a", 0)) is None
    series, _ = joined(asking("a", 0))
    assert forget(series, asking("a", 0), after(10)) is None


@pytest.mark.parametrize(
    ("event", "replaced_by"),
    [
        (asking("b", 5).to_json(), "op-b"),
        (asking("b", -5).to_json(), None),
        ({"operation_id": "op-b"}, None),
        ("op-b", None),
        (None, None),
    ],
)
def test_an_event_says_what_replaces_an_operation(event: object, replaced_by: str | None) -> None:
    debounce = Debounce(entity="e", key="k", seconds=10.0, accepted_at=NOON)
    assert debounce.replaced_by(event) == replaced_by


def test_the_state_is_read_back() -> None:
    series, place = joined(asking("a", 0), asking("b", 4))
    assert Series.from_json(series.to_json()) == series
    assert DebouncePlace.from_json(place.to_json()) == place
    assert isinstance(Series.from_json(series.to_json()).due_at, datetime)


@pytest.mark.parametrize(
    ("document", "outcome"),
    [
        ({"status": "cancelled", "attempt_count": 0, "debounce_key": "k", "replaced_by": "op-2"}, "replaced"),
        ({"status": "succeeded", "attempt_count": 1, "debounce_key": "k"}, "ran"),
        ({"status": "cancelled", "attempt_count": 1, "debounce_key": "k"}, "ran"),
        ({"status": "cancelled", "attempt_count": 0, "debounce_key": "k"}, None),
        ({"status": "succeeded", "attempt_count": 1}, None),
    ],
)
def test_the_last_document_says_what_became_of_it(document: dict[str, Any], outcome: str | None) -> None:
    assert debounce_outcome(document) == outcome


def test_members_that_are_null_make_no_part() -> None:
    assert MEMBERS.part_of(DebounceMembers(), "handler ship", PAYMENTS, NOON) is None


def test_a_renamed_dependency_goes_on_with_the_series_of_its_earlier_name() -> None:
    members, renamed = DebounceMembers(debounce_key="k", debounce_seconds=5), replace(PAYMENTS, was=("old",))
    before = replace(PAYMENTS, name="old")
    call, of_handler = {"dependency": "old", "request": {"path": "/"}}, {"handler": "ship"}

    def part_of(body: dict[str, Any], dependency: Dependency) -> Part:
        target = parse_operation(body).target_at(dependency)
        return existing(MEMBERS.part_of(members, target, dependency, NOON))

    parts = [
        part_of(call, before),
        part_of(call, renamed),
        part_of(call | {"dependency": "payments"}, renamed),
    ]
    assert parts[0] == parts[1] == parts[2]
    assert part_of(of_handler, before) == part_of(of_handler, renamed) != parts[0]
