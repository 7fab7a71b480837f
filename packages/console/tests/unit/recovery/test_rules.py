"""The outages of a dependency, as looks at its circuit a minute apart show them."""

from dataclasses import dataclass

import pytest

from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.states import CircuitState
from durable_retry_console.keys import Recovery
from durable_retry_console.recovery.rules import Outage, Outages, seen_outage
from tests.support.builders import NOON, after
from tests.support.circuit import tripped

RECOVERY = Recovery()
CLOSED = Breaker(draining_since=after(300))


@dataclass
class Watch:
    """What is known between looks."""

    known: Outages | None = None

    def look(self, breaker: Breaker, at: float) -> Outage | None:
        self.known, outage = seen_outage(self.known, breaker, 30.0, RECOVERY, after(at))
        return outage


def test_an_outage_is_followed_once_its_circuit_has_been_closed_for_long() -> None:
    watch, desk = Watch(), tripped()
    assert watch.look(desk.breaker, 60) is None
    desk.control(300, ManualControl.CLOSE)
    assert [watch.look(desk.breaker, at) for at in (300, 419.9)] == [None, None]
    outage = watch.look(desk.breaker, 420)
    assert outage == Outage(began_at=after(-30), ended_at=after(300))
    assert [watch.look(desk.breaker, at) for at in (421, 480, 9_000)] == [None, None, None]


def test_an_outage_in_which_the_circuit_closed_for_a_while_is_one() -> None:
    watch, desk = Watch(), tripped()
    watch.look(desk.breaker, 60)
    desk.control(300, ManualControl.CLOSE)
    assert watch.look(desk.breaker, 360) is None
    desk.control(380, ManualControl.OPEN)
    assert watch.look(desk.breaker, 420) is None
    desk.control(500, ManualControl.CLOSE)
    assert watch.look(desk.breaker, 620) == Outage(began_at=after(-30), ended_at=after(500))


def test_an_outage_between_two_looks_began_after_the_first() -> None:
    watch = Watch()
    assert watch.look(Breaker(), 240) is None
    assert watch.look(CLOSED, 420) == Outage(began_at=after(210), ended_at=after(300))


def test_what_was_over_long_before_the_first_look_is_not_followed() -> None:
    watch = Watch()
    assert [watch.look(CLOSED, at) for at in (1_000, 1_060)] == [None, None]
    assert watch.known == Outages(ended_at=after(300))


@pytest.mark.parametrize("state", [CircuitState.DISABLED, CircuitState.HALF_OPEN])
def test_nothing_follows_while_it_is_not_closed(state: CircuitState) -> None:
    breaker = Breaker(state=state, draining_since=after(300))
    assert Watch(Outages()).look(breaker, 420) is None


def test_the_id_of_what_follows_is_that_of_the_outage() -> None:
    outage = Outage(began_at=NOON, ended_at=after(300))
    assert outage.action_id("payments", "acme") != outage.action_id("payments", "")
    assert outage.action_id("payments", "") == outage.action_id("payments", "")
    others = {
        outage.action_id("ledger", ""),
        Outage(began_at=NOON, ended_at=after(301)).action_id("payments", ""),
    }
    assert outage.action_id("payments", "") not in others
    assert len(outage.action_id("payments", "")) == len("bulk-") + 32
