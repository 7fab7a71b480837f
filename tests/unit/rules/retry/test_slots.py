from dataclasses import replace

import pytest

from durable_retry.rules.retry.slots import Slot, SlotPostponed, as_heard
from tests.support.builders import NOON, after


@pytest.mark.parametrize(
    ("late_seconds", "counted_seconds"), [(0.1, 0.0), (2.0, 0.0), (2.5, 2.5), (18.0, 18.0)]
)
def test_a_turn_that_was_long_under_way_counts_from_its_call(
    late_seconds: float, counted_seconds: float
) -> None:
    slot, now = Slot("op-1:1", NOON, turn_seconds=0.4), after(late_seconds)
    assert as_heard(slot, NOON, now) == replace(slot, turn_seconds=0.4 - counted_seconds)
    postponed = SlotPostponed(1.5, "5 attempts per second", turn_seconds=2.5)
    heard = replace(postponed, seconds=max(1.5 - counted_seconds, 0.0), turn_seconds=2.5 - counted_seconds)
    assert as_heard(postponed, NOON, now) == heard


@pytest.mark.parametrize("answer", [Slot("op-1:1", NOON), SlotPostponed(1.5, "4 attempts at once")])
def test_an_answer_without_a_turn_counts_from_when_it_is_heard(answer: Slot | SlotPostponed) -> None:
    assert as_heard(answer, NOON, after(18)) == answer
