from dataclasses import replace

import pytest

from durable_retry.base.json_forms import to_ms
from durable_retry.features.limits.rules.fair import Place
from durable_retry.features.limits.rules.limiter import LONGEST_TOLD_SECONDS, Limiter
from durable_retry.features.limits.rules.successor import with_successor
from tests.support.builders import NOON, after


def with_two_told(*, is_called: bool | None = None) -> Limiter:
    """Return a limiter with nothing lent where two wait to be told, for two minutes by now."""
    at_ms, later_ms = to_ms(NOON), to_ms(after(LONGEST_TOLD_SECONDS))
    places = (
        Place(at_ms, "x", to_ms(after(60)), waiter=None),
        Place(at_ms, "a", later_ms, waiter="op-1", is_called=is_called),
        Place(at_ms, "b", later_ms, waiter="op-2"),
    )
    return Limiter(clock=NOON, places=places)


def test_where_those_that_were_called_have_left_the_next_one_is_called() -> None:
    limiter, waiter = with_successor(with_two_told())
    assert waiter == "op-1"
    assert [place.is_called for place in limiter.places] == [None, True, None]


@pytest.mark.parametrize(
    "limiter",
    [
        with_two_told(is_called=True),
        replace(with_two_told(), clock=after(58)),
        replace(with_two_told(), places=with_two_told().places[:1]),
        Limiter(),
    ],
    ids=["one is called", "one asks soon", "none can be told", "nobody waits"],
)
def test_nobody_is_called_in_place_of_one_that_comes(limiter: Limiter) -> None:
    assert with_successor(limiter) == (limiter, None)
