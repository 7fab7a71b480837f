import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.names import Priority
from durable_retry.features.dead_letter_lists.rules.filters import EVERY, DeadLetterFilter, DeadLetterSearch
from durable_retry.rules.dead_letters.record import KeptDeadLetter, Status, of_operation
from tests.support.builders import NOON, PAYMENTS, an_entry
from tests.support.feature_parts import in_order

RECORD = of_operation(an_entry("op-1"), NOON)


def test_a_dependency_has_the_dead_letters_of_its_earlier_names() -> None:
    wanted = DeadLetterFilter(reason="RejectedByDependency", dependency="till", priority=Priority.LOW)
    reason = {"reason": ("RejectedByDependency",)}
    assert wanted.facets(None) == reason | {"dependency": ("till",)}
    renamed = replace(PAYMENTS, was=("till", "old"))
    assert wanted.facets(renamed) == reason | {"dependency": ("till", "old", "payments")}
    assert DeadLetterFilter().facets(None) == {}


def test_one_of_several_reasons_must_match_in_the_row_and_in_the_record() -> None:
    row = {"reason": RECORD.reason.value}
    ours = DeadLetterFilter(reasons=("RetriesExhausted", "RejectedByDependency"))
    others = DeadLetterFilter(reasons=("RetriesExhausted",))
    assert (ours.may_match_names(row), ours.matches_record(RECORD)) == (True, True)
    assert (others.may_match_names(row), others.matches_record(RECORD)) == (False, False)
    assert (others.columns, DeadLetterFilter(order_key="a").columns) == (("reason",), ("names",))


LANE = of_operation(
    an_entry("op-2", parts=in_order("lane-7"), priority=Priority.HIGH, limit_key="c-17"), NOON
)


@pytest.mark.parametrize(
    ("wanted", "is_found"),
    [
        (DeadLetterFilter(), True),
        (DeadLetterFilter(order_key="lane-7", priority=Priority.HIGH), True),
        (DeadLetterFilter(order_key="lane-7", priority=Priority.NORMAL), False),
        (DeadLetterFilter(order_key="lane-70"), False),
        (DeadLetterFilter(debounce_key="lane-7"), False),
        (DeadLetterFilter(limit_key="c-17"), True),
        (DeadLetterFilter(limit_key="c-1"), False),
    ],
)
def test_every_name_that_is_given_must_match_in_the_row_and_in_the_record(
    wanted: DeadLetterFilter, *, is_found: bool
) -> None:
    assert wanted.may_match_names(row_of(LANE.names)) is is_found
    assert wanted.matches_record(LANE) is is_found
    assert not replace(wanted, status=Status.ARCHIVED).matches_record(LANE)


def test_what_has_no_names_or_cannot_be_read_may_have_them() -> None:
    wanted = DeadLetterFilter(order_key="lane-8")
    for row in ({}, {"names": "["}, {"names": 7}):
        assert wanted.may_match_names(row)
    assert wanted.matches_record(replace(LANE, unreadable="no JSON"))


def test_a_filter_that_ends_earlier_keeps_its_end() -> None:
    early = DeadLetterFilter(created_before=NOON)
    assert early.until(NOON + timedelta(days=1)) == early
    assert DeadLetterFilter(reason="R").until(NOON) == DeadLetterFilter(reason="R", created_before=NOON)


@pytest.mark.parametrize("status", [None, Status.OPEN])
def test_a_filter_travels_as_json(status: Status | None) -> None:
    wanted = replace(DeadLetterFilter(reason="R", created_after=NOON), status=status)
    assert DeadLetterFilter.from_json(wanted.to_json()) == wanted


def a_record() -> KeptDeadLetter:
    more: dict[str, Any] = {"key": "order-41", "correlation_id": "basket-7", "parts": in_order("lane-7")}
    return of_operation(an_entry("op-1", **more), NOON)


def row_of(names: dict[str, str]) -> dict[str, Any]:
    """Return the index row of `a_record` with these names."""
    return {"reason": a_record().reason.value, "names": json.dumps(names)}


def test_a_filter_chooses_by_the_version_of_the_app() -> None:
    record = replace(a_record(), app_version="1.4.0")
    same, other = DeadLetterFilter(app_version="1.4.0"), DeadLetterFilter(app_version="1.4")
    for each in (record, a_record()):
        fits = each is record
        assert (same.may_match_names(row_of(each.names)), same.matches_record(each)) == (fits, fits)
        assert not other.may_match_names(row_of(each.names))
    assert not DeadLetterSearch(words="1.4.0").matches(record)


FOUND = [
    EVERY,
    DeadLetterSearch(key="order-41"),
    DeadLetterSearch(key="order-41", correlation_id="basket-7"),
    DeadLetterSearch(words="LANE basket"),
    DeadLetterSearch(words=f"order-41 {a_record().id[:7]} rejectedBy 422"),
]
MISSED = [
    DeadLetterSearch(key="order-4"),
    DeadLetterSearch(key="order-41", correlation_id="basket-70"),
    DeadLetterSearch(words="lane-8"),
    DeadLetterSearch(words="lane-7 é"),
    # The name of a field stands in the row's text, and is no word of the dead letter.
    DeadLetterSearch(words="debounce_key"),
]


@pytest.mark.parametrize("search", FOUND)
def test_a_dead_letter_is_found_in_its_row_and_in_its_record(search: DeadLetterSearch) -> None:
    assert search.may_match(a_record().id, row_of(a_record().names))
    assert search.matches(a_record())


@pytest.mark.parametrize("search", MISSED)
def test_another_one_is_in_neither(search: DeadLetterSearch) -> None:
    assert not search.may_match("dl-1", row_of(a_record().names))
    assert not search.matches(a_record())


@pytest.mark.parametrize("names", ["[", 7])
def test_what_nobody_can_read_may_match(names: Any) -> None:
    assert DeadLetterSearch(key="order-42").may_match("dl-1", {"reason": "RetriesExhausted", "names": names})
    assert DeadLetterSearch(key="order-42").matches(replace(a_record(), unreadable="no JSON"))
