"""The lists that a filter reads, and what it matches."""

from dataclasses import replace
from datetime import timedelta

import pytest

from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.record import Facets, Status, of_operation
from tests.support.builders import NOON, an_entry

RECORD = of_operation("dl-1", an_entry("op-1"), NOON)
FACETS = Facets.of(RECORD)


def test_a_dead_letter_stands_in_a_list_for_each_of_its_facets() -> None:
    assert FACETS.lists == (
        "all",
        "reason=RejectedByDependency",
        "category=malformed",
        f"dependency={RECORD.dependency}",
        f"group={RECORD.group}",
    )


@pytest.mark.parametrize(
    ("wanted", "key", "is_exact"),
    [
        (DeadLetterFilter(), "all", True),
        (DeadLetterFilter(category="malformed"), "category=malformed", True),
        (DeadLetterFilter(category="malformed", reason="PoisonMessage"), "reason=PoisonMessage", False),
        (DeadLetterFilter(dependency="payments", reason="PoisonMessage"), "dependency=payments", False),
        (DeadLetterFilter(dependency="payments", group="g-1"), "group=g-1", False),
    ],
)
def test_the_shortest_list_is_looked_through(wanted: DeadLetterFilter, key: str, *, is_exact: bool) -> None:
    assert (wanted.key, wanted.is_exact) == (key, is_exact)


def test_every_facet_that_is_given_must_match() -> None:
    assert DeadLetterFilter().matches(FACETS)
    assert DeadLetterFilter(reason="RejectedByDependency", category="malformed").matches(FACETS)
    assert not DeadLetterFilter(reason="RejectedByDependency", category="transient").matches(FACETS)
    assert not DeadLetterFilter(group="another").matches(FACETS)
    assert not DeadLetterFilter(dependency="another").matches(FACETS)


def test_a_filter_that_ends_earlier_keeps_its_end() -> None:
    early = DeadLetterFilter(created_before=NOON)
    assert early.until(NOON + timedelta(days=1)) == early
    assert DeadLetterFilter(reason="R").until(NOON) == DeadLetterFilter(reason="R", created_before=NOON)


@pytest.mark.parametrize("status", [None, Status.OPEN])
def test_a_filter_travels_as_json(status: Status | None) -> None:
    wanted = replace(DeadLetterFilter(reason="R", created_after=NOON), status=status)
    assert DeadLetterFilter.from_json(wanted.to_json()) == wanted
