from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import pytest

from durable_retry.base.json_forms import union_from_json
from durable_retry.base.names import Category, DeadLetterReason
from durable_retry.rules.circuit.messages import PermitMessage
from durable_retry.rules.circuit.retry_budget import BudgetPostponed
from durable_retry.rules.circuit.snapshot import Permitted, Refused, throttled
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.retry.admission import AdmissionState, StepAdmission
from durable_retry.rules.retry.decide import MAX_OWN_FAILURES, DeadLetter, Done, Wait
from durable_retry.rules.retry.history import (
    KEPT_ACTIONS,
    KEPT_WAITS,
    History,
    PastAction,
    PastWait,
    WaitKind,
    end_of,
)
from durable_retry.rules.retry.loop import (
    TRANSPORT_SECONDS,
    AttemptNow,
    Blocked,
    BlockedStep,
    LapResult,
    NeedsProbe,
    RequestProbe,
    RequestSlot,
    RetryState,
    WorkerFailed,
    after,
    before_turn,
    kind_of_block,
    lease_expired,
    probe_message,
)
from durable_retry.rules.retry.slots import NeedsSlot, Slot, SlotPostponed
from tests.support.builders import NOON, a_history, a_record, an_operation, an_outcome
from tests.support.builders import after as later
from tests.support.narrowing import existing, second_of_type

LEASE = Permitted(7, lease_id="op-test:2", lease_expires_at=NOON + timedelta(seconds=15))
REFUSED = Refused(NOON, 40, NOON + timedelta(seconds=1), "the circuit is open: 9 of 10 calls failed")


def in_seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "state",
    [
        AdmissionState(),
        AdmissionState(waiting=True, promised_at=NOON),
        AdmissionState(permit=LEASE),
        AdmissionState(slot=Slot(f"{an_operation().run_id}:1"), turn_at=NOON),
    ],
)
def test_an_admission_state_survives_its_json(state: AdmissionState) -> None:
    assert AdmissionState.from_json(state.to_json()) == state


def test_without_a_state_it_is_a_first_attempt() -> None:
    assert AdmissionState.from_json({}) == AdmissionState()


@pytest.mark.parametrize(
    "blocked",
    [
        REFUSED,
        NeedsProbe(CircuitSettings(half_open_calls=3)),
        BudgetPostponed(NOON, reserved=True),
        BudgetPostponed(NOON, reserved=False),
        NeedsSlot({"max_concurrency": 3, "rate_per_second": 1.5}),
    ],
)
def test_what_blocks_an_attempt_survives_its_json(blocked: Blocked) -> None:
    assert union_from_json(Blocked, blocked.to_json()) == blocked


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "tired"},
        {"kind": "permitted", "epoch": 1},
        {"until": 7, "reserved": True},
    ],
)
def test_nothing_else_blocks_an_attempt(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no stored Blocked: it"):
        union_from_json(Blocked, document)


WITH_PROBE: Final = AdmissionState(permit=Permitted(3, "op-test:2", NOON + in_seconds(25)))
WITH_SLOT: Final = AdmissionState(slot=Slot("op-test:1", NOON), slot_ends_at=NOON + in_seconds(25))


@pytest.mark.parametrize("lent", [WITH_PROBE, WITH_SLOT], ids=["probe", "slot"])
def test_an_attempt_that_was_queued_goes_by_its_lease_only_if_it_can_end_within_it(
    lent: AdmissionState,
) -> None:
    assert lent.at_begin(NOON + in_seconds(15), 10) == lent
    assert lent.at_begin(NOON + in_seconds(15.1), 10) == AdmissionState()


def test_a_probe_whose_lease_is_over_leaves_the_slot_that_came_after_it() -> None:
    """Without its slot the attempt would ask for it, get it and come again under the old probe, for ever."""
    slot_ends_at = NOON + in_seconds(60)
    lent = replace(WITH_PROBE, slot=WITH_SLOT.slot, slot_ends_at=slot_ends_at)
    assert lent.at_begin(NOON + in_seconds(20), 10) == replace(WITH_SLOT, slot_ends_at=slot_ends_at)


@pytest.mark.parametrize("without", [AdmissionState(permit=Permitted(3)), AdmissionState(slot=Slot())])
def test_what_was_granted_without_a_lease_does_not_expire(without: AdmissionState) -> None:
    assert without.at_begin(NOON + in_seconds(3_600), 10) == without


def test_a_probe_is_asked_for_the_time_of_an_attempt_and_some_room() -> None:
    message = probe_message(an_operation(), 2, CircuitSettings(), NOON)
    assert message.request.lease_seconds == an_operation().timeouts.attempt_seconds + TRANSPORT_SECONDS
    assert message.request.lease_id == "op-test:2"
    assert PermitMessage.from_json(message.to_json()) == message


@pytest.mark.parametrize("blocked", [NeedsProbe(CircuitSettings()), NeedsSlot({"max_concurrency": 1})])
def test_a_lease_has_room_for_the_queue_that_the_blocked_attempt_was_in(
    blocked: NeedsProbe | NeedsSlot,
) -> None:
    seconds = []
    for queued in (0, 90):
        state, action = after(an_operation(), RetryState(), blocked, NOON, on_its_way=in_seconds(queued))
        assert isinstance(action, RequestProbe | RequestSlot)
        request = action.message.request if isinstance(action, RequestProbe) else action.request
        seconds.append(request.lease_seconds)
        if isinstance(blocked, NeedsSlot):
            assert state.admission.slot_ends_at == NOON + in_seconds(request.lease_seconds)
    assert seconds[1] == seconds[0] + 180


def a_wait(before_attempt: int, seconds: float, kind: WaitKind = WaitKind.CIRCUIT) -> PastWait:
    return PastWait(
        before_attempt=before_attempt,
        kind=kind,
        began_at=NOON + in_seconds(seconds),
        until=NOON + in_seconds(seconds + 1),
        delay_reasons=(f"since {seconds}",),
    )


@pytest.mark.parametrize("result", [an_outcome(counted=False, error="storage"), WorkerFailed("storage")])
@pytest.mark.shows("P11")
def test_a_failure_of_our_own_side_shows_its_wait_and_a_deadline_that_it_used_up(result: LapResult) -> None:
    state, decision, now = RetryState(), None, NOON
    while not isinstance(decision, DeadLetter):
        state, decision = after(an_operation(deadline_in=60), state, result, now)
        (wait,) = state.history.waits
        if isinstance(decision, Wait):
            assert wait.kind is WaitKind.OWN_FAILURE
            assert (wait.began_at, wait.until, wait.delay_reasons) == (NOON, decision.until, decision.reasons)
            assert wait.delay_reasons[0].startswith("attempt 1 failed on this side and is not counted: ")
            now = decision.until
    assert decision.reason is DeadLetterReason.DEADLINE_EXCEEDED
    assert "attempt 1 failed on this side" in decision.detail
    assert state.history.attempt_count == 0


@pytest.mark.parametrize(("late", "shown"), [(2.0, 0), (2.1, 1)])
def test_an_attempt_that_begins_late_shows_that_nothing_here_worked_on_it(late: float, shown: int) -> None:
    due_at = end_of(a_record(1)) + in_seconds(a_record(1).next_delay_seconds or 0)
    outcome = an_outcome(number=2, started_at=due_at + in_seconds(late))
    state, _ = following(outcome, RetryState(a_history(1), due_at=due_at))
    assert len(state.history.waits) == shown
    for wait in state.history.waits:
        assert (wait.before_attempt, wait.kind) == (2, WaitKind.OWN_FAILURE)
        assert (wait.began_at, wait.until) == (due_at, outcome.started_at)
        assert wait.delay_reasons == ("for 2.1 s nothing here worked on the operation",)


@pytest.mark.parametrize(("late", "shown"), [(2.0, 0), (2.1, 1)])
def test_the_turn_that_takes_note_of_an_attempt_late_shows_that_nothing_here_worked_on_it(
    late: float, shown: int
) -> None:
    """Nobody made turns between the end of the attempt and then."""
    failed = an_outcome(category=Category.TRANSIENT, duration_ms=1_000)
    state, decision = second_of_type(Wait, after(an_operation(), RetryState(), failed, later(1 + late)))
    reasons = state.history.attempts[0].delay_reasons
    assert reasons == ("for 2.1 s nothing here worked on the operation after it",) * shown + decision.reasons


def test_what_is_late_before_and_after_a_pause_counts_together() -> None:
    failed = an_outcome(category=Category.TRANSIENT, duration_ms=1_000)
    state, decision = second_of_type(Wait, after(an_operation(), RetryState(), failed, later(2.5)))
    assert state.history.attempts[0].delay_reasons == decision.reasons
    again = an_outcome(number=2, started_at=decision.until + in_seconds(0.6))
    state, _ = following(again, state)
    (wait,) = state.history.waits
    assert wait.delay_reasons == ("for 2.1 s nothing here worked on the operation",)
    assert wait.began_at == decision.until - in_seconds(1.5)


def test_an_attempt_that_waited_for_its_circuit_is_late_from_the_end_of_that_wait_on() -> None:
    failed = an_outcome(category=Category.TRANSIENT, duration_ms=1_000)
    state, _ = after(an_operation(), RetryState(), failed, later(1))
    refused = Refused(base=later(60), waiting=0, until=later(60), reason="open")
    state, _ = after(an_operation(), state, refused, later(20))
    state, _ = following(an_outcome(number=2, started_at=later(61)), state)
    (wait,) = state.history.waits
    assert wait.kind is WaitKind.CIRCUIT


def test_waits_of_one_kind_before_one_attempt_are_recorded_as_one() -> None:
    (wait,) = History().with_wait(a_wait(1, 0)).with_wait(a_wait(1, 5)).waits
    assert (wait.times, wait.began_at, wait.until) == (2, NOON, NOON + in_seconds(6))
    assert wait.delay_reasons == ("since 5",)


def test_other_waits_stand_by_themselves_and_the_latest_are_kept() -> None:
    history = History().with_wait(a_wait(1, 0)).with_wait(a_wait(1, 1, WaitKind.RETRY_BUDGET))
    assert [wait.kind.value for wait in history.waits] == ["circuit", "retry_budget"]
    for attempt in range(2, 12):
        history = history.with_wait(a_wait(attempt, attempt))
    assert [wait.before_attempt for wait in history.waits] == list(range(12 - KEPT_WAITS, 12))


def test_waits_survive_the_json_of_a_history_and_an_older_one_has_none() -> None:
    history = History().with_wait(a_wait(1, 0))
    assert History.from_json(history.to_json()) == history
    older = {name: value for name, value in history.to_json().items() if name != "waits"}
    assert History.from_json(older) == History()


def test_the_latest_actions_of_people_are_kept() -> None:
    history = History()
    assert "actions" not in history.to_json()
    for number in range(KEPT_ACTIONS + 2):
        history = history.with_action(PastAction(action="retry_now", at=NOON, by=f"person-{number}"))
    assert [action.by for action in history.actions or ()] == [
        f"person-{number}" for number in range(2, KEPT_ACTIONS + 2)
    ]
    assert History.from_json(history.to_json()) == history


OPEN = Refused(base=later(20), waiting=0, until=later(20), reason="open")
PROBE = Permitted(7, lease_id=f"{an_operation().run_id}:1", lease_expires_at=later(15))


def following(result: LapResult, state: RetryState | None = None) -> tuple[RetryState, object]:
    return after(an_operation(), state or RetryState(), result, NOON)


def test_a_success_ends_it_with_its_result() -> None:
    state, action = following(an_outcome(None, result={"status_code": 200}))
    assert action == Done({"status_code": 200})
    assert state.history.attempt_count == 1


def test_a_failure_waits_and_the_next_attempt_starts_its_admission_anew() -> None:
    before = RetryState(admission=AdmissionState(waiting=True, promised_at=NOON))
    state, action = second_of_type(Wait, following(an_outcome(), before))
    assert state.due_at == action.until == later(10)
    assert state.admission == AdmissionState(due_at=later(10))


@pytest.mark.parametrize(
    "result", [an_outcome(), an_outcome(counted=False), WorkerFailed("the worker failed")]
)
@pytest.mark.parametrize("waiting", [True, False])
def test_a_probe_that_failed_counts_among_those_who_wait_as_often_as_before(
    result: LapResult, *, waiting: bool
) -> None:
    """300 operations behind a circuit whose probe failed 12 times were shown as 312."""
    before = RetryState(admission=AdmissionState(waiting=waiting, permit=PROBE))
    state, _ = following(result, before)
    assert state.admission.waiting is waiting


@pytest.mark.parametrize("promised_at", [None, NOON])
def test_an_attempt_at_what_is_missing_keeps_the_token_that_it_has(promised_at: datetime | None) -> None:
    """The budget of a dependency that is not there was not asked."""
    before = RetryState(a_history(1), AdmissionState(promised_at=promised_at))
    state, action = second_of_type(Wait, following(an_outcome(counted=False, missing=True), before))
    assert state.admission.promised_at == (promised_at and action.until)


@pytest.mark.parametrize("result", [an_outcome(counted=False), WorkerFailed("the worker failed")])
@pytest.mark.shows("W1")
def test_an_attempt_that_never_left_keeps_its_token_and_its_number(result: LapResult) -> None:
    state, action = second_of_type(Wait, following(result, RetryState(a_history(2))))
    assert state.admission == AdmissionState(promised_at=action.until, due_at=action.until)
    assert (state.history.next_attempt, state.history.own_failures) == (3, 1)
    state, _ = following(result, RetryState())
    assert state.admission.promised_at is None, "a first attempt takes none"


def test_executions_that_sent_nothing_are_known_to_the_next_until_the_attempt_is_made() -> None:
    state = RetryState()
    for name in ("first", "second"):
        state, _ = following(an_outcome(Category.TRANSIENT, counted=False, unsent=name), state)
    state, _ = following(WorkerFailed("the worker failed"), state)
    assert state.admission.unsent == ("first", "second")
    state, _ = following(an_outcome(Category.TRANSIENT), state)
    assert state.admission.unsent is None


@pytest.mark.parametrize("handler", [None, "h"])
@pytest.mark.parametrize(
    ("result", "request_acted", "handler_acted"),
    [
        (an_outcome(Category.TRANSIENT), True, True),
        (an_outcome(Category.AMBIGUOUS), True, True),
        (an_outcome(None), True, True),
        (WorkerFailed("the worker failed"), True, True),
        (an_outcome(Category.TRANSIENT, counted=False), False, False),
        (an_outcome(Category.DEADLINE_EXCEEDED, counted=False), False, False),
        (an_outcome(Category.THROTTLED, status_code=429), False, True),
        (an_outcome(Category.MALFORMED, status_code=400), False, True),
        (an_outcome(Category.BUSINESS_RULE, status_code=409), False, True),
        (an_outcome(Category.BUSINESS_RULE, status_code=None, did_nothing=True), False, False),
        (an_outcome(Category.BUSINESS_RULE, status_code=None), False, True),
        (an_outcome(Category.TRANSIENT, status_code=404), False, True),
        (an_outcome(Category.MALFORMED, status_code=499), True, True),
        (an_outcome(Category.TRANSIENT, status_code=None), True, True),
        (an_outcome(Category.TRANSIENT, status_code=None, did_nothing=True), False, False),
    ],
)
def test_an_attempt_without_a_clear_refusal_may_have_acted(
    result: LapResult, handler: str | None, *, request_acted: bool, handler_acted: bool
) -> None:
    """A bug of a handler comes after whatever it did before; so does the refusal of one of its calls."""
    state, _ = after(an_operation(handler=handler), RetryState(), result, NOON)
    assert state.may_have_acted is (request_acted if handler is None else handler_acted)
    assert RetryState.from_json(state.to_json()).may_have_acted is state.may_have_acted


def test_what_one_attempt_may_have_done_is_not_forgotten_by_others() -> None:
    state = RetryState()
    for category in (Category.TRANSIENT, Category.THROTTLED, Category.TRANSIENT, Category.MALFORMED):
        state, _ = following(an_outcome(category), state)
    assert state.may_have_acted
    state, _ = following(an_outcome(Category.MALFORMED))
    assert not state.may_have_acted


def test_a_handler_that_a_step_holds_up_may_have_acted() -> None:
    state, _ = after(an_operation(handler="h"), RetryState(), REFUSED, NOON, step_at="other")
    assert state.may_have_acted


@pytest.mark.parametrize(
    ("blocked", "kind"),
    [
        (REFUSED, WaitKind.CIRCUIT),
        (replace(REFUSED, throttled=True), WaitKind.THROTTLE),
        (NeedsProbe(CircuitSettings()), WaitKind.CIRCUIT),
        (BudgetPostponed(NOON, reserved=False), WaitKind.RETRY_BUDGET),
        (NeedsSlot({}), WaitKind.LIMIT),
        (BlockedStep("other", REFUSED), WaitKind.CIRCUIT),
    ],
)
def test_what_blocks_an_attempt_says_why_it_waits(blocked: Blocked | BlockedStep, kind: WaitKind) -> None:
    assert kind_of_block(blocked) is kind


def test_a_refusal_ends_it() -> None:
    _, _action = second_of_type(DeadLetter, following(an_outcome(Category.MALFORMED)))


def test_a_half_open_circuit_is_asked_for_a_probe_and_nothing_else_changes() -> None:
    state, action = following(NeedsProbe(CircuitSettings()), RetryState(a_history(1)))
    assert isinstance(action, RequestProbe)
    assert action.message.request.lease_id == "op-test:2"
    assert state == RetryState(a_history(1))


def test_a_permitted_probe_goes_at_once_with_its_permit() -> None:
    state, action = following(PROBE, RetryState(admission=AdmissionState(promised_at=NOON)))
    assert action == AttemptNow()
    assert state.admission == AdmissionState(promised_at=NOON, permit=PROBE)
    assert state.due_at == NOON


@pytest.mark.parametrize("refused", [OPEN, lease_expired(NOON)])
def test_a_refused_attempt_waits_in_the_queue_without_its_permit(refused: Refused) -> None:
    before = RetryState(a_history(1), AdmissionState(promised_at=NOON, permit=PROBE, due_at=NOON))
    state, action = second_of_type(Wait, following(refused, before))
    assert action.kind is WaitKind.CIRCUIT
    assert state.admission == AdmissionState(waiting=True, promised_at=NOON, due_at=NOON)
    (wait,) = state.history.waits
    assert (wait.before_attempt, wait.began_at, wait.until) == (2, NOON, action.until)
    assert state.history == replace(a_history(1), waits=(wait,), circuit_waits=1)


def test_a_probe_that_waits_for_a_slot_keeps_its_permit_as_its_circuit_lets_no_other_probe() -> None:
    """In the circuit of a limit key a probe needs a slot, too."""
    before = RetryState(admission=AdmissionState(waiting=True, permit=PROBE))
    asking, _ = second_of_type(RequestSlot, following(NeedsSlot({"max_concurrency": 1}), before))
    waiting, _ = second_of_type(Wait, following(SlotPostponed(2.5, "1 attempt at once", ahead=3), asking))
    assert waiting.admission.permit == PROBE
    held, _ = second_of_type(Wait, following(OPEN, waiting))
    assert held.admission == replace(waiting.admission, permit=None, slot_ends_at=None)


@pytest.mark.parametrize("reserved", [True, False])
def test_a_token_that_was_taken_is_for_the_instant_that_was_promised(*, reserved: bool) -> None:
    state = RetryState(a_history(1), AdmissionState(promised_at=NOON, due_at=NOON))
    state, action = following(BudgetPostponed(later(9), reserved=reserved, limit_key="a"), state)
    assert isinstance(action, Wait)
    assert action.kind is WaitKind.RETRY_BUDGET
    promised_at = later(9) if reserved else None
    assert state.admission == AdmissionState(promised_at=promised_at, circuit_key="a", due_at=NOON)
    early = before_turn(state, later(3))
    assert (early and (early.until, early.kind)) == ((later(9), WaitKind.RETRY_BUDGET) if reserved else None)
    assert [wait.kind for wait in state.history.waits] == [WaitKind.RETRY_BUDGET]


def test_a_wait_that_is_not_begun_is_not_in_the_history() -> None:
    state, _action = second_of_type(DeadLetter, after(an_operation(deadline_in=10), RetryState(), OPEN, NOON))
    assert state.history.waits == ()


def test_the_state_survives_its_json_and_an_older_one_has_no_instant() -> None:
    state = RetryState(a_history(1), AdmissionState(waiting=True, due_at=later(1)), later(2))
    assert RetryState.from_json(state.to_json()) == state
    older = {name: value for name, value in state.to_json().items() if name != "due_at"}
    assert RetryState.from_json(older) == replace(state, due_at=None)
    assert RetryState.from_json({}) == RetryState()


def test_an_attempt_beyond_the_share_asks_for_a_slot_and_goes_with_it() -> None:
    limits = {"max_concurrency": 3}
    state, action = second_of_type(RequestSlot, after(an_operation(), RetryState(), NeedsSlot(limits), NOON))
    assert action.request.lease_id == f"{an_operation().run_id}:1"
    assert action.request.settings == limits
    state, then = after(an_operation(), state, Slot(f"{an_operation().run_id}:1"), NOON)
    assert isinstance(then, AttemptNow)
    assert state.admission.slot == Slot(f"{an_operation().run_id}:1")
    state, _ = after(an_operation(), state, an_outcome(Category.TRANSIENT), NOON)
    assert state.admission.slot is None


def test_a_postponed_attempt_waits_and_keeps_its_turn_until_that_is_over() -> None:
    postponed = SlotPostponed(2.5, "1 attempt per second", turn_seconds=3.5)
    state, action = second_of_type(Wait, after(an_operation(), RetryState(), postponed, NOON))
    assert (action.until, action.kind) == (NOON + in_seconds(2.5), WaitKind.LIMIT)
    assert "1 attempt per second" in action.reasons[0]
    assert state.admission.turn_at == NOON + in_seconds(3.5)
    needed = NeedsSlot({"rate_per_second": 1})
    for seconds, is_reserved in ((5.5, True), (5.6, False)):
        lap = after(an_operation(), state, needed, NOON + in_seconds(seconds))
        request = second_of_type(RequestSlot, lap)[1].request
        assert (request.reserved, request.has_waited) == (is_reserved, False)


@pytest.mark.parametrize(("held_seconds", "is_kept"), [(1.0, True), (3.1, False)])
def test_a_turn_is_void_when_the_circuit_or_the_budget_holds_its_attempt_up_for_longer(
    held_seconds: float, *, is_kept: bool
) -> None:
    state, until = RetryState(admission=AdmissionState(turn_at=later(3))), later(held_seconds)
    for refusal in (Refused(NOON, 0, until, "released in turn"), BudgetPostponed(until, reserved=True)):
        held, _ = after(an_operation(), state, refusal, NOON)
        assert held.admission.turn_at == (later(3) if is_kept else None)


def test_a_turn_is_void_also_where_the_refusal_is_over_by_now_and_it_asks_again_after_that() -> None:
    state = RetryState(admission=AdmissionState(turn_at=later(1)))
    over = Refused(base=NOON, waiting=0, until=NOON, reason="it was open")
    held, action = second_of_type(Wait, after(an_operation(), state, over, NOON))
    assert action.until > later(1)
    assert held.admission.turn_at is None


def test_a_slot_has_the_turn_that_was_reserved_or_its_own() -> None:
    state = RetryState(admission=AdmissionState(turn_at=NOON))
    kept, _ = after(an_operation(), state, Slot("op-1:1", NOON), NOON)
    assert kept.admission.turn_at == NOON
    given, _ = after(an_operation(), state, Slot("op-1:1", NOON, turn_seconds=0.5), NOON)
    assert given.admission.turn_at == NOON + in_seconds(0.5)


@pytest.mark.parametrize("missed_at", [-60.0, 1.0])
def test_one_that_has_missed_a_turn_does_not_miss_the_next_one_by_a_late_answer(missed_at: float) -> None:
    late = SlotPostponed(0.0, "1 attempt per second", turn_seconds=-5.0)
    first, _ = after(an_operation(), RetryState(), late, NOON)
    assert first.admission.turn_at == NOON - in_seconds(5), "it asks again"
    state = RetryState(admission=AdmissionState(turn_at=NOON + in_seconds(missed_at)))
    second, _ = after(an_operation(), state, late, NOON)
    assert second.admission.turn_at == NOON


def test_an_attempt_that_somebody_wakes_waits_for_its_turn_all_the_same() -> None:
    assert before_turn(RetryState(), NOON) is None
    state = RetryState(admission=AdmissionState(turn_at=NOON + in_seconds(2.5)))
    for far in (state, RetryState(step=StepAdmission("stock", state.admission))):
        wait = existing(before_turn(far, NOON))
        assert (wait.until, wait.kind) == (NOON + in_seconds(1.5), WaitKind.LIMIT)
        assert before_turn(far, NOON + in_seconds(1)) is None, "it waits at its worker"


def test_who_is_let_past_the_circuit_and_meets_a_pause_waits_for_its_end_as_others_do() -> None:
    paused = throttled("op-test", later(100), 0, "429")
    state, action = following(paused, RetryState(admission=AdmissionState(is_canary=True)))
    assert isinstance(action, Wait)
    assert action.kind is WaitKind.THROTTLE
    assert (state.admission.is_canary, state.admission.waiting) == (None, True)


def test_what_does_not_come_for_now_holds_nothing_and_keeps_its_age() -> None:
    waiting = AdmissionState(
        waiting=True, promised_at=NOON, permit=PROBE, ahead=3, turn_at=NOON, slot_since=NOON
    )
    state = RetryState(admission=waiting, step=StepAdmission("stock", waiting))
    assert state.admissions("payments") == (("payments", waiting), ("stock", waiting))
    left = state.with_nothing_held()
    for _, admission in left.admissions("payments"):
        assert admission == AdmissionState(waiting=True, slot_since=NOON)
        assert not admission.has_place


def test_a_slot_is_asked_for_no_later_than_the_deadline() -> None:
    operation = replace(an_operation(), deadline_at=NOON + in_seconds(60))
    _, action = after(operation, RetryState(), NeedsSlot({"rate_per_second": 1}), NOON)
    assert isinstance(action, RequestSlot)
    assert action.request.latest_seconds == 60 - operation.timeouts.connect_seconds
    late = SlotPostponed(59.0, "1 attempt per second")
    _, action = second_of_type(DeadLetter, after(operation, RetryState(), late, NOON))


def test_the_slot_of_an_attempt_that_needs_a_probe_is_not_kept() -> None:
    state = RetryState(admission=AdmissionState(slot=Slot(f"{an_operation().run_id}:1")))
    state, action = after(an_operation(), state, NeedsProbe(CircuitSettings()), NOON)
    assert isinstance(action, RequestProbe)
    assert state.admission.slot is None


def test_an_attempt_keeps_its_place_however_late_the_answer_comes() -> None:
    needed, busy = NeedsSlot({"max_concurrency": 1}), SlotPostponed(0.5, "1", ahead=0)
    state, first = after(an_operation(), RetryState(), needed, NOON)
    state, _ = after(an_operation(), state, busy, NOON + in_seconds(20))
    _, second = after(an_operation(), state, needed, NOON + in_seconds(21))
    assert isinstance(first, RequestSlot)
    assert isinstance(second, RequestSlot)
    assert (first.request.due_at, second.request.due_at) == (NOON, NOON)
    assert (first.request.has_waited, second.request.has_waited) == (False, True)


@pytest.mark.parametrize("result", [WorkerFailed("gone"), an_outcome(Category.TRANSIENT, counted=False)])
def test_an_attempt_that_never_left_keeps_its_age(result: LapResult) -> None:
    needed = NeedsSlot({"max_concurrency": 1})
    state, _ = after(an_operation(), RetryState(), needed, NOON)
    state, _ = after(an_operation(), state, result, NOON + in_seconds(20))
    _, again = second_of_type(RequestSlot, after(an_operation(), state, needed, NOON + in_seconds(22)))
    assert again.request.due_at == NOON


def test_an_attempt_that_may_still_answer_may_have_acted_and_counts_nothing() -> None:
    until = NOON + in_seconds(300)
    under_way = an_outcome(Category.AMBIGUOUS, error="it runs", counted=False, may_answer_until=until)
    state, _action = second_of_type(Wait, after(an_operation(), RetryState(), under_way, NOON))
    assert state.may_have_acted
    assert (state.history.attempt_count, state.history.own_failures) == (0, 1)


REFUSAL = an_outcome(Category.UNAUTHORIZED, status_code=401, counted=False)


@pytest.mark.parametrize("handler", [None, "charge"])
def test_a_refused_credential_keeps_the_number_and_a_handler_may_have_acted(handler: str | None) -> None:
    operation = an_operation(handler=handler, request=None)
    state, action = second_of_type(Wait, after(operation, RetryState(), REFUSAL, NOON))
    assert state.history.next_attempt == 1
    assert state.may_have_acted is (handler is not None)
    state, action = second_of_type(Wait, after(operation, RetryState(a_history(1)), REFUSAL, NOON))
    assert state.admission.promised_at == action.until, "a retry keeps its token"


@pytest.mark.parametrize(
    "state",
    [
        RetryState(admission=AdmissionState(permit=LEASE)),
        RetryState(admission=AdmissionState(is_canary=True)),
        RetryState(step=StepAdmission("depot", AdmissionState(permit=LEASE))),
    ],
)
def test_whoever_tries_for_all_that_wait_is_refused_without_end(state: RetryState) -> None:
    for _ in range(2 * MAX_OWN_FAILURES):
        after_it, _action = second_of_type(Wait, after(an_operation(deadline_at=None), state, REFUSAL, NOON))
        state = replace(state, history=after_it.history)
    assert state.history.own_failures == 1
