from dataclasses import replace
from datetime import timedelta

import pytest

from engine.dead_letter import Status, of_operation
from engine.dead_letter_filter import Facets, Filter
from tests.dead_letter_samples import an_entry
from tests.operation_stage import START

RECORD = of_operation("dl-1", an_entry("op-1"), START)
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
        (Filter(), "all", True),
        (Filter(category="malformed"), "category=malformed", True),
        (Filter(category="malformed", reason="PoisonMessage"), "reason=PoisonMessage", False),
        (Filter(dependency="payments", reason="PoisonMessage"), "dependency=payments", False),
        (Filter(dependency="payments", group="g-1"), "group=g-1", False),
    ],
)
def test_the_shortest_list_is_looked_through(wanted: Filter, key: str, *, is_exact: bool) -> None:
    assert (wanted.key, wanted.is_exact) == (key, is_exact)


def test_every_facet_that_is_given_must_match() -> None:
    assert Filter().matches(FACETS)
    assert Filter(reason="RejectedByDependency", category="malformed").matches(FACETS)
    assert not Filter(reason="RejectedByDependency", category="transient").matches(FACETS)
    assert not Filter(group="another").matches(FACETS)
    assert not Filter(dependency="another").matches(FACETS)


def test_a_filter_that_ends_earlier_keeps_its_end() -> None:
    early = Filter(created_before=START)
    assert early.until(START + timedelta(days=1)) == early
    assert Filter(reason="R").until(START) == Filter(reason="R", created_before=START)


@pytest.mark.parametrize("status", [None, Status.OPEN])
def test_a_filter_travels_as_json(status: Status | None) -> None:
    wanted = replace(Filter(reason="R", created_after=START), status=status)
    assert Filter.from_json(wanted.to_json()) == wanted
