"""Entities whose messages come twice, late, and in another order, as Azure Storage delivers them.

Each case has a history as its senders see it: what is sent, and how often each message arrives. Whatever the
order of arrival, what must not change stays as it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import permutations
from pkgutil import iter_modules
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import entities
from durable_retry.base.json_forms import to_ms
from durable_retry.features.limits.rules.calls import look, successors
from durable_retry.features.limits.rules.leases import NO_LEASES, Lease, name_of
from durable_retry.features.limits.rules.limiter import acquire, give_back, leave
from durable_retry.features.limits.rules.settings import KeyLimits, LimitSettings
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.features.order.rules.lane import Lane, Place, joined, left, passed_to, released, taken
from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.calls import CallHealth, ProbeResult
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.key_changes import KeyChange
from durable_retry.rules.circuit.messages import PermitMessage, ReportMessage
from durable_retry.rules.circuit.retry_budget import Budget, RetryBudgetSettings
from durable_retry.rules.circuit.snapshot import Permitted
from durable_retry.rules.circuit.states import CircuitSettings, CircuitState
from durable_retry.rules.circuit.transitions import Gone, ManualAction, ProbeRequest
from durable_retry.rules.operations.keys import KeyCompletion, KeyRecord, complete, expire
from durable_retry.rules.retry.slots import Leaving, Slot, SlotRequest
from tests.support.builders import NOON, after
from tests.support.circuit import Desk
from tests.support.narrowing import second_of_type

COVERED: Final[Mapping[str, frozenset[str]]] = {
    "CallLimiter": frozenset({"acquire", "change", "give_back", "leave", "look", "reset"}),
    "CircuitBreaker": frozenset({"report", "permit", "hand", "freeze", "key_changed", "gone", "forget"}),
    "Debounce": frozenset({"arrive", "begin", "withdraw", "forget"}),
    "IdempotencyRecord": frozenset({"complete", "expire"}),
    "OrderLane": frozenset({"join", "take", "leave", "drop", "release"}),
}
"""Every operation of every entity; a new one needs a case here first."""


def test_every_operation_of_every_entity_has_a_case_here() -> None:
    found = {}
    for module in iter_modules(entities.__path__):
        for cls in vars(import_module(f"entities.{module.name}")).values():
            if isinstance(cls, type) and cls.__module__.startswith("entities."):
                operations = {each for each in vars(cls) if not each.startswith("_")}
                found[cls.__name__] = frozenset(operations)
    assert found == COVERED


# call_limiter: an orchestration asks, is granted, makes its attempt, gives the slot back. Repetitions of both
# messages arrive at any time after they were sent.

ONE: Final = LimitSettings(max_concurrency=1)
ONE_OF_EACH: Final = LimitSettings(max_concurrency=1, per_key=KeyLimits(max_concurrency=1))


def asking(operation: int, asked_at: float, settings: LimitSettings = ONE, **more: Any) -> SlotRequest:
    return SlotRequest(
        f"op-{operation}:1",
        70.0,
        settings.to_json(),
        asked_at=after(asked_at),
        due_at=after(asked_at),
        **more,
    )


def lent(limiter: Limiter, lease_id: str) -> Lease | None:
    return limiter.leases.find(name_of(lease_id), limiter.clock or NOON)


@dataclass
class Orchestrations:
    """Operations that take the only slot in turn; each message may arrive again later."""

    limiter: Limiter = field(default_factory=Limiter)
    now: float = 0.0
    under_way: int | None = None
    turn: int = 0
    keys: int = 0  # how many limit keys they have, each in its turn

    def take(self, late: list[Callable[[], None]]) -> None:
        """Ask until the slot is granted, as an orchestration does."""
        self.turn += 1
        for _ in range(200):
            self.now += 1
            key = f"customer-{self.turn % self.keys}" if self.keys else None
            request = asking(self.turn, self.now, ONE_OF_EACH if self.keys else ONE, limit_key=key)
            self.limiter, answer = acquire(self.limiter, request, after(self.now))
            late.append(partial(self.deliver, request))
            if isinstance(answer, Slot):
                assert self.under_way is None
                self.under_way = self.turn
                return
        raise AssertionError("the slot was never granted")

    def deliver(self, message: SlotRequest | Slot) -> None:
        """Deliver a message once more: nobody waits for its answer."""
        if isinstance(message, Slot):
            self.limiter = give_back(self.limiter, message, after(self.now))
        else:
            self.limiter, _ = acquire(self.limiter, message, after(self.now))

    def give(self, late: list[Callable[[], None]]) -> None:
        """End the attempt and give the slot back."""
        assert self.under_way is not None
        lease = lent(self.limiter, f"op-{self.under_way}:1")
        assert lease is not None, "the lease of an attempt under way was freed"
        slot = Slot(f"op-{self.under_way}:1", lease.asked_at)
        self.under_way = None
        self.deliver(slot)
        late.append(partial(self.deliver, slot))


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(0, 3))
def test_a_slot_is_lent_to_one_and_free_at_rest_whatever_comes_again(arrivals: list[int], keys: int) -> None:
    story, late = Orchestrations(keys=keys), list[Callable[[], None]]()
    for number in arrivals:
        story.give(late) if story.under_way is not None else story.take(late)
        late[number % len(late)]()
        assert len(story.limiter.leases) <= 1
        if story.under_way is not None:
            assert lent(story.limiter, f"op-{story.under_way}:1") is not None
    if story.under_way is not None:
        story.give(late)
    for deliver in late:
        deliver()
    assert len(story.limiter.leases) == 0


def test_a_give_back_that_overtakes_a_repetition_of_its_request_leaks_no_place() -> None:
    limiter, granted = second_of_type(Slot, acquire(Limiter(), asking(1, 0), NOON))
    limiter = give_back(limiter, granted, after(1))
    limiter, _ = acquire(limiter, asking(1, 0), after(2))
    assert len(limiter.leases) == 0
    assert acquire(limiter, asking(2, 3), after(3))[1] == Slot("op-2:1", after(3))


def test_looks_that_come_twice_early_or_late_lend_no_slot_and_lose_nobody_who_waits() -> None:
    limiter, granted = second_of_type(Slot, acquire(Limiter(), asking(1, 0), NOON))
    limiter, _ = acquire(limiter, replace(asking(2, 0), waiter="op-2"), NOON)
    limiter, called = successors(give_back(limiter, granted, after(1)))
    for at in (1.5, 3.0, 3.0, 5.5):
        limiter, told = look(limiter, after(at))
        called += told
        assert len(limiter.leases) == 0
    assert called == ("op-2", "op-2"), "what came too early says nothing, and a second one that it is gone"
    assert acquire(limiter, asking(2, 6), after(6))[1] == Slot("op-2:1", after(6))


def test_a_late_message_of_a_start_in_a_share_takes_no_slot_from_a_later_request() -> None:
    limiter, granted = acquire(Limiter(), asking(1, 0), NOON)
    for _ in range(2):
        limiter = leave(limiter, Leaving("op-1:1"), after(1))
    assert lent(limiter, "op-1:1") is not None
    assert isinstance(granted, Slot)


def test_a_give_back_before_its_request_lends_nothing_afterwards() -> None:
    limiter = give_back(Limiter(), Slot("op-1:1", NOON), NOON)
    assert acquire(limiter, asking(1, 0), after(1))[0].leases == NO_LEASES


def test_a_late_give_back_does_not_free_the_slot_of_a_later_attempt_of_the_same_number() -> None:
    limiter, first = acquire(Limiter(), asking(1, 0), NOON)
    limiter, _ = acquire(limiter, asking(1, 5), after(5))
    assert isinstance(first, Slot)
    limiter = give_back(limiter, first, after(6))
    assert lent(limiter, "op-1:1") is not None


def test_a_slot_that_a_repeated_turn_got_by_a_clock_behind_is_given_back() -> None:
    limiter, _ = acquire(Limiter(), asking(1, 20), NOON)  # Nobody waits: the turn's history was not stored.
    limiter, granted = second_of_type(Slot, acquire(limiter, asking(1, 5), after(1)))
    assert give_back(limiter, granted, after(2)).leases == NO_LEASES


def test_a_request_that_comes_twice_takes_one_turn_of_the_rate() -> None:
    rate = LimitSettings(rate_per_second=1.0)
    limiter, _ = acquire(Limiter(), asking(1, 0, rate), NOON)
    limiter, _ = acquire(limiter, asking(2, 0, rate), NOON)
    reserved = limiter.last_start_at
    for _ in range(3):
        limiter, _ = acquire(limiter, asking(2, 0, rate), after(1))
        limiter, _ = acquire(limiter, asking(1, 0, rate), after(1))
    assert limiter.last_start_at == reserved


# circuit_breaker: reports count once, a probe's request that comes again after its end blocks nobody, the
# latest word of a person holds.


@given(st.permutations(range(4)), st.lists(st.integers(0, 3), max_size=8))
def test_a_circuit_lists_each_key_once_however_often_and_in_whatever_order_it_hears_of_them(
    order: list[int], again: list[int]
) -> None:
    circuit = Breaker()
    for number in (*order, *again):
        circuit = circuit.with_key(KeyChange(f"k-{number}", is_free=number == 0))
    assert sorted(circuit.keys or ()) == ["k-1", "k-2", "k-3"]


@given(st.integers(0, 5), st.integers(0, 8), st.floats(-9, 9), st.booleans())
def test_a_circuit_that_hears_more_often_that_somebody_is_gone_counts_nobody_less_than_none(
    waiting: int,
    times: int,
    tokens: float,
    was_promised: bool,  # noqa: FBT001 - drawn
) -> None:
    circuit = Breaker(waiting=waiting, budget=Budget(tokens=tokens))
    for _ in range(times):
        circuit = Gone(was_waiting=True, was_promised=was_promised).apply(circuit, NOON)
    assert circuit.remaining_waiting(NOON) == max(waiting - times, 0)
    given_back = min(tokens + times, 0.0) if tokens < 0 and was_promised else tokens
    assert circuit.budget.tokens == pytest.approx(given_back)


@pytest.mark.parametrize("waited_hours", [0, 2])
def test_a_circuit_that_is_asked_twice_whether_it_is_idle_says_the_same(waited_hours: int) -> None:
    circuit, now = Breaker(clock=NOON, limit_key="k-1"), after(3_600 * waited_hours)
    assert circuit.is_idle(now) is circuit.is_idle(now) is (waited_hours > 0)
    assert Breaker().limit_key is None, "what was forgotten is that of no key, and is not forgotten again"


@given(st.permutations(range(6)), st.lists(st.integers(0, 5), max_size=10))
def test_reports_count_once_in_whatever_order_they_arrive(order: list[int], again: list[int]) -> None:
    sender, circuit = Desk(), Breaker()
    reports = [sender.report(0, successes=3, failures=1) for _ in range(6)]
    settings = CircuitSettings(minimum_calls=1_000)
    for number in (*order, *again):
        message = ReportMessage(reports[number], settings, RetryBudgetSettings())
        circuit = message.apply(circuit, after(1))
    counts = circuit.window.everything()
    assert (counts.calls, counts.failures) == (24, 6)


def half_open() -> tuple[Breaker, CircuitSettings]:
    settings = CircuitSettings(consecutive_failures=1, break_seconds=30)
    sender = Desk()
    report = ReportMessage(sender.report(0, failures=1), settings, RetryBudgetSettings())
    circuit = report.apply(Breaker(), after(0))
    assert circuit.state is CircuitState.OPEN
    return circuit, settings


def probing(operation: int, at: float, settings: CircuitSettings) -> PermitMessage:
    return PermitMessage(ProbeRequest(f"op-{operation}", 1, after(at), lease_seconds=600), settings)


def test_a_probes_request_that_comes_again_after_its_end_blocks_no_other_probe() -> None:
    circuit, settings = half_open()
    circuit, answer = second_of_type(Permitted, probing(1, 31, settings).apply(circuit, after(31)))
    assert answer.lease_id is not None
    ended = ProbeResult(answer.lease_id, answer.epoch, CallHealth.SILENT, answer.lease_expires_at)
    report = replace(Desk().report(32), reporter="w", probes=(ended,))
    circuit = ReportMessage(report, settings, RetryBudgetSettings()).apply(circuit, after(32))
    circuit, _ = probing(1, 31, settings).apply(circuit, after(33))
    assert circuit.leases == ()
    circuit, _other = second_of_type(Permitted, probing(2, 34, settings).apply(circuit, after(34)))
    again, _ = probing(2, 34, settings).apply(circuit, after(35))
    assert again.leases == circuit.leases


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_latest_word_of_a_person_holds_in_whatever_order_the_messages_arrive(
    order: tuple[int, ...],
) -> None:
    words = [(0, ManualControl.OPEN), (10, ManualControl.CLOSE), (20, ManualControl.DISABLE)]
    circuit = Breaker()
    for number in (*order, *order):
        at, control = words[number]
        circuit = ManualAction(control, after(at), "ann", "why").apply(circuit, after(30))
    assert circuit.state is CircuitState.DISABLED
    assert len(circuit.audit.entries) == 3


@given(st.permutations(range(4)), st.lists(st.integers(0, 3), max_size=4))
def test_the_latest_word_of_a_freeze_holds_in_whatever_order_the_messages_arrive(
    order: list[int], again: list[int]
) -> None:
    begun = Freeze(since=NOON, at=NOON, by="ann", reason="a wrong price list")
    some = begun.then(after(60), share=0.1)
    ended = some.then(after(120), until=after(120))
    later = replace(begun, since=after(180), at=after(180), reason="another one")
    said, breaker = (begun, some, ended, later), Breaker()
    for number in (*order, *again):
        breaker = breaker.with_freeze(said[number], after(200))
    assert breaker.freeze == later


# idempotency_record: a run ends as a dead letter, and its replay succeeds; messages come again, in any order.

FAILED: Final = KeyCompletion(
    run=1, fingerprint="f", document={"status": "dead_lettered"}, now=after(1), ttl_seconds=3_600
)
REPLAYED: Final = replace(FAILED, run=2, document={"status": "succeeded"}, now=after(60))


@given(st.lists(st.sampled_from([FAILED, REPLAYED, None]), max_size=12))
def test_a_record_has_the_end_of_the_replay_once_that_has_come(
    arrivals: list[KeyCompletion | None],
) -> None:
    record: KeyRecord | None = None
    for number, arrival in enumerate(arrivals):
        record = expire(record, now=after(100 + number)) if arrival is None else complete(record, arrival)
        if REPLAYED in arrivals[: number + 1]:
            assert record is not None
            assert (record.run, record.document) == (2, {"status": "succeeded"})


def _joined(lane: Lane, place: Place) -> Lane:
    return joined(lane, place)


def _taken(lane: Lane, place: Place) -> Lane:
    return taken(lane, place)[0]


def _left(lane: Lane, place: Place, letter: str | None) -> Lane:
    return left(lane, place, letter)


# order_lane: three operations are accepted, ask for their turn, and end; the first ends as a dead letter that
# blocks, and is replayed, or archived. Every message arrives at least once, in any order.

_FIRST: Final = Place("op-first", to_ms(NOON), to_ms(NOON))
_REPLAY: Final = _FIRST._replace(accepted_ms=to_ms(after(60)), run=to_ms(after(60)))
_SECOND: Final = Place("op-second", to_ms(after(1)), to_ms(after(1)))
_THIRD: Final = Place("op-third", to_ms(after(2)), to_ms(after(2)))

_LANE_MESSAGES: Final[tuple[Callable[[Lane], Lane], ...]] = (
    *(partial(_joined, place=place._replace(run=0)) for place in (_FIRST, _SECOND, _THIRD)),
    *(partial(_taken, place=place) for place in (_FIRST, _REPLAY, _SECOND, _THIRD)),
    partial(_left, place=_FIRST, letter="dl-1"),
    *(partial(_left, place=place, letter=None) for place in (_REPLAY, _SECOND, _THIRD)),
    partial(released, operation_id="op-first", dead_letter_id="dl-1"),
)


@given(st.lists(st.sampled_from(range(len(_LANE_MESSAGES))), max_size=40))
def test_a_lane_never_has_a_place_twice_or_a_dead_letter_of_nobody(arrivals: list[int]) -> None:
    lane = Lane(order_key="customer-7")
    for index in arrivals:
        before, lane = lane, _LANE_MESSAGES[index](lane)
        names = [place.operation_id for place in lane.places()]
        assert len(names) == len(set(names))
        assert set(lane.dead_letters) <= set(names)
        told = passed_to(before, lane)
        assert told is None or (told == lane.front and lane.blocking is None)


@given(st.permutations(range(len(_LANE_MESSAGES))), st.lists(st.sampled_from(range(len(_LANE_MESSAGES)))))
def test_what_is_over_is_not_in_its_lane_in_the_end(order: list[int], again: list[int]) -> None:
    """But for joins and asks that come after the lane has forgotten an end: a look takes their places."""
    lane = Lane(order_key="customer-7")
    for index in [*again, *order]:
        lane = _LANE_MESSAGES[index](lane)
    assert {place.operation_id for place in lane.places()} <= {"op-first"}
    for place in (_SECOND, _THIRD, _REPLAY):
        assert not taken(lane, place)[1].has_turn or place == _REPLAY


def test_the_turn_is_that_of_one_whatever_comes_again() -> None:
    lane = Lane(order_key="customer-7")
    for place in (_FIRST, _SECOND, _THIRD):
        lane = joined(lane, place._replace(run=0))
    for places in permutations((_FIRST, _SECOND, _THIRD)):
        answers = []
        asked = lane
        for place in (*places, *places):
            asked, turn = taken(asked, place)
            answers.append((place, turn.has_turn))
        assert {place for place, has_turn in answers if has_turn} == {_FIRST}
