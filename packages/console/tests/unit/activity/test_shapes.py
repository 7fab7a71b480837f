"""The entries of the activity that a question finds."""

import pytest

from durable_retry.rules.facts import TargetType
from durable_retry_console.activity.shapes import ActivityFilter, ActivityItem, ActivityKind, ActivityTarget
from tests.support.builders import NOON

ITEM = ActivityItem(
    at=NOON,
    kind=ActivityKind.ACTION,
    who="ada",
    what="archived the dead letter",
    target=ActivityTarget(type=TargetType.DEAD_LETTER, id="dl-7", url=None),
    reason="paid by hand",
    dependency="payments",
)


@pytest.mark.parametrize(
    "wanted",
    [
        ActivityFilter(),
        ActivityFilter(kind=ActivityKind.ACTION, who="ada", dependency="payments"),
        ActivityFilter(words="PAID archived"),
        ActivityFilter(words="dl-7 ada payments"),
    ],
)
def test_an_entry_is_found_by_what_is_known_of_it(wanted: ActivityFilter) -> None:
    assert wanted.matches(ITEM)


@pytest.mark.parametrize(
    "wanted",
    [
        ActivityFilter(kind=ActivityKind.BULK),
        ActivityFilter(who="ad"),
        ActivityFilter(dependency="stock"),
        ActivityFilter(words="archived yesterday"),
    ],
)
def test_an_entry_that_differs_in_one_thing_is_not_found(wanted: ActivityFilter) -> None:
    assert not wanted.matches(ITEM)
