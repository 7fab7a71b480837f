"""The entries of the activity that a question finds."""

from collections.abc import Iterator

import pytest

from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.facts import TargetType
from durable_retry.settings.configuration import using
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


@pytest.fixture(autouse=True)
def _renamed() -> Iterator[None]:
    with using(parse_config('[dependencies.pay]\nwas = ["payments"]', {})):
        yield


@pytest.mark.parametrize(
    "wanted",
    [
        ActivityFilter(),
        ActivityFilter(kind=ActivityKind.ACTION, who="ada", dependency="payments"),
        ActivityFilter(dependency="pay"),
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
