"""Priorities of those who wait for a slot: low is never starved, and equal ones go by age."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from durable_retry.engine.base.names import Priority
from durable_retry.engine.limits.limiter import Limiter, Slot, SlotRequest, acquire, give_back
from durable_retry.engine.limits.settings import LimitSettings
from tests.support.builders import after

HELD = 1.0
ONE = LimitSettings(max_concurrency=1)


@dataclass(frozen=True)
class Waiting:
    """An attempt that asks again and again."""

    name: str
    due: float
    priority: Priority | None

    def asking(self, now: float) -> SlotRequest:
        return SlotRequest(
            self.name,
            lease_seconds=70.0,
            settings=ONE,
            asked_at=after(now),
            due_at=after(self.due),
            priority=self.priority,
        )


def served(arrivals: list[Waiting], until: int) -> dict[str, float]:
    """Let everybody ask in every second, and return when each got the only slot, which it holds for one."""
    limiter, got = Limiter(), {}
    for second in range(until):
        waiting = [each for each in arrivals if each.due <= second and each.name not in got]
        # A first round tells the limiter who waits; in the next one the first in order gets the slot.
        for turn in (0.0, 0.4):
            for each in waiting:
                at = second + turn
                if each.name in got:
                    continue
                limiter, answer = acquire(limiter, each.asking(at), after(at))
                if isinstance(answer, Slot):
                    got[each.name] = at
        for name in [name for name, at in got.items() if second <= at]:
            lease = limiter.lease_of(name)
            if lease is not None:
                limiter = give_back(limiter, Slot(name, lease.asked_at), after(second + 0.9))
    return got


@given(st.integers(2, 6), st.sampled_from([Priority.HIGH, None]))
def test_low_goes_although_others_never_cease_to_come(head_start: int, others: Priority | None) -> None:
    # As many come as can go: without a bound the one with `low` would wait for ever.
    low = Waiting("low", 0.0, Priority.LOW)
    backlog = [Waiting(f"before-{number}", 0.0, others) for number in range(head_start)]
    stream = [Waiting(f"later-{second}", float(second), others) for second in range(1, 160)]
    got = served([low, *backlog, *stream], 160)
    weight = 16 if others is Priority.HIGH else 4
    assert got["low"] <= (head_start + 3) * weight


@given(st.integers(1, 6))
def test_high_goes_before_what_has_waited_for_less_than_four_times_as_long(number: int) -> None:
    normal = [Waiting(f"normal-{each}", 0.0, None) for each in range(number)]
    got = served([Waiting("held", -1.0, None), *normal, Waiting("high", 0.5, Priority.HIGH)], 30)
    assert all(got["high"] <= got[each.name] for each in normal[1:])


@given(st.lists(st.integers(0, 20), min_size=2, max_size=8, unique=True), st.sampled_from([*Priority, None]))
def test_equal_ones_go_by_age(dues: list[int], priority: Priority | None) -> None:
    got = served([Waiting(f"op-{due:02d}", float(due), priority) for due in dues], 60)
    assert sorted(got, key=lambda name: got[name]) == sorted(got)
    assert len(got) == len(dues)
