"""What dead letters are looked for by, in their index rows and in their records."""

import json
from dataclasses import replace
from typing import Any

import pytest

from durable_retry.engine.dead_letters.filters import EVERY, DeadLetterSearch
from durable_retry.engine.dead_letters.record import KeptDeadLetter, of_operation
from tests.support.builders import NOON, an_entry


def a_record() -> KeptDeadLetter:
    more = {"key": "order-41", "correlation_id": "basket-7", "order_key": "lane-7"}
    return of_operation("dl-1", an_entry("op-1", **more), NOON)


def row_of(names: dict[str, str]) -> dict[str, Any]:
    """Return the index row of `a_record` with these names."""
    return {"reason": a_record().reason.value, "names": json.dumps(names)}


FOUND = [
    EVERY,
    DeadLetterSearch(key="order-41"),
    DeadLetterSearch(key="order-41", correlation_id="basket-7"),
    DeadLetterSearch(words="LANE basket"),
    DeadLetterSearch(words="order-41 dl-1 rejectedBy 422"),
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
    assert search.may_match("dl-1", row_of(a_record().names))
    assert search.matches(a_record())


@pytest.mark.parametrize("search", MISSED)
def test_another_one_is_in_neither(search: DeadLetterSearch) -> None:
    assert not search.may_match("dl-1", row_of(a_record().names))
    assert not search.matches(a_record())


@pytest.mark.parametrize("names", ["[", 7])
def test_what_nobody_can_read_may_match(names: Any) -> None:
    assert DeadLetterSearch(key="order-42").may_match("dl-1", {"reason": "RetriesExhausted", "names": names})
    assert DeadLetterSearch(key="order-42").matches(replace(a_record(), unreadable="no JSON"))
