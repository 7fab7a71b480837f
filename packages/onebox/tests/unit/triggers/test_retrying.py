from datetime import timedelta

import pytest

from onebox.triggers.retrying import Backoff

LEAST = timedelta(milliseconds=100)


@pytest.mark.shows("R9")
def test_pauses_grow_from_100_ms_to_the_limit_and_stay_there() -> None:
    backoff = Backoff(LEAST, timedelta(seconds=2), draw=lambda: 0.5)
    pauses = [backoff.next_pause().total_seconds() for _ in range(8)]
    assert pauses == [0.1, 0.2, 0.3, 0.5, 0.9, 1.7, 2.0, 2.0]


def test_a_found_message_makes_the_pauses_short_again() -> None:
    backoff = Backoff(LEAST, timedelta(seconds=2), draw=lambda: 0.5)
    for _ in range(5):
        backoff.next_pause()
    backoff.begin_again()
    assert backoff.next_pause() == timedelta(milliseconds=100)


def test_the_draw_moves_a_pause_by_a_fifth_of_its_growth() -> None:
    def third_pause(drawn: float) -> float:
        backoff = Backoff(LEAST, timedelta(minutes=1), draw=lambda: drawn)
        return [backoff.next_pause() for _ in range(3)][2].total_seconds()

    assert (third_pause(0.0), third_pause(1.0)) == (0.26, 0.34)


def test_it_never_overflows() -> None:
    backoff = Backoff(LEAST, timedelta(days=1), draw=lambda: 1.0)
    assert [backoff.next_pause() for _ in range(5000)][-1] == timedelta(days=1)
