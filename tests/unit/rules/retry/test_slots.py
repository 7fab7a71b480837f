from dataclasses import replace

import pytest

from durable_retry.rules.retry.slots import Slot, SlotPostponed, SlotRequest, as_heard, within_deadline
from tests.support.builders import NOON, after
from tests.support.narrowing import of_type


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


@pytest.mark.parametrize(
    ("latest", "seconds", "heard"),
    [
        (30.0, 30.0, 28.999),
        (30.0, 5.0, 5.0),
        (30.0, 31.0, 31.0),
        (29.9996, 30.0, 28.9986),
        (0.5, 0.5, 0.0),
        (None, 30.0, 30.0),
    ],
)
def test_a_wait_until_shortly_before_the_deadline_is_no_longer_when_it_is_heard_later(
    latest: float | None, seconds: float, heard: float
) -> None:
    request = SlotRequest("op-1:1", 70.0, {}, NOON, NOON, latest_seconds=latest)
    postponed = SlotPostponed(seconds, "4 attempts at once")
    answer = of_type(SlotPostponed, within_deadline(postponed, request, after(1)))
    assert answer.seconds == pytest.approx(heard)
    assert within_deadline(Slot(), request, after(1)) == Slot()
