"""Row keys that sort by time, and instants in sentences."""

from datetime import timedelta

from durable_retry.engine.base.instants import (
    DIGITS,
    age,
    from_age,
    from_microseconds,
    from_newest_first,
    microseconds,
    newest_first,
    oldest_first,
    time_text,
)
from durable_retry.stores.storage.contents import quoted
from tests.support.builders import NOON

LATER = NOON + timedelta(microseconds=1)


def test_an_instant_in_a_sentence_has_its_day_where_that_is_another_one() -> None:
    assert time_text(NOON, LATER) == "12:00 UTC"
    assert time_text(NOON, NOON + timedelta(days=1)) == "2026-11-21 12:00 UTC"


def test_keys_sort_by_the_microsecond_and_have_one_length() -> None:
    assert newest_first(LATER) < newest_first(NOON)
    assert age(LATER) < age(NOON)
    assert oldest_first(NOON) < oldest_first(LATER)
    assert {len(key(NOON)) for key in (newest_first, age, oldest_first)} == {DIGITS}


def test_stored_keys_never_change() -> None:
    instant = from_microseconds(1_700_000_000_123_456)
    assert oldest_first(instant) == "01700000000123456"
    assert newest_first(instant) == "98299999999876543"
    assert age(instant) == "98299999999876544"


def test_an_instant_comes_back_from_its_microseconds() -> None:
    assert from_microseconds(microseconds(LATER)) == LATER
    assert from_age(age(LATER)) == LATER
    assert from_newest_first(newest_first(LATER)) == LATER


def test_a_key_holds_no_character_that_tables_refuse_or_that_ends_a_list() -> None:
    assert quoted("a/b#c?d~e=f\n") == "a!2Fb!23c!3Fd!7Ee=f!0A"
