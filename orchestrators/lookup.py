"""Asks a dependency whether an attempt took effect whose end is unknown: one question and wait in each lap.

A question has a retry loop of its own: like an attempt it needs admission, is repeated, and is given up.
"""

from dataclasses import replace
from datetime import datetime
from functools import partial

from durable_retry.base.names import CANCEL_EVENT, Category, DeadLetterReason, OperationState
from durable_retry.features.lookup.names import LOOK_UP
from durable_retry.features.lookup.rules import (
    Inquiry,
    LookupCall,
    Unclear,
    after_question,
    carried,
    inquiry_about,
    is_unknown,
    question_of,
    unclear_in,
)
from durable_retry.hub.turns import Asking, Turns, answer_of, continue_retry_loop, give_slot_back, leave_gates
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.decide import DeadLetter, Decision, after_attempt
from durable_retry.rules.retry.history import AttemptOutcome, PastWait, WaitKind
from durable_retry.rules.retry.loop import (
    AttemptNow,
    Blocked,
    NeedsProbe,
    RequestProbe,
    RequestSlot,
    RetryState,
    WorkerFailed,
    lease_expired,
    lease_id_of,
)
from durable_retry.settings.configuration import function_name

from .run import Run


def begin(run: Run) -> Turns[Decision | None]:
    """Wait for the start; before a replay ask whether the earlier run took effect if its end is unknown.

    Returns:
        How the operation ends in place of an attempt; None when it begins, was cancelled, or asks again in a
        history of its own.
    """
    if run.operation.start_at is not None and not run.has_begun:
        yield from run.wait_for_start(run.operation.start_at)
    unclear = unclear_in(run.operation)
    if unclear.since is None:
        return None
    outcome = run.unsettled or _outcome_of_earlier(unclear, unclear.since)
    while run.goes_on and (yield from run.hold()):
        settled = yield from _settled(run, outcome)
        if settled is not None:
            run.unsettled = None
            return _before_attempt(run, unclear, settled)
        outcome = run.unsettled or outcome
        run.laps += 1
    return None


def _outcome_of_earlier(unclear: Unclear, since: datetime) -> AttemptOutcome:
    number = unclear.attempt or 1
    outcome = AttemptOutcome(number=number, started_at=since, duration_ms=0.0, category=Category.AMBIGUOUS)
    return carried(outcome, Inquiry(ended_at=since))


def _before_attempt(run: Run, unclear: Unclear, settled: AttemptOutcome) -> Decision | None:
    if settled.category is not Category.TRANSIENT:
        if settled.known_by is not None:
            _note_found(run, settled.known_by)
        return after_attempt(run.operation, run.state.history, settled, run.now)
    if not unclear.only_asks:
        return None
    detail = f"{settled.error}; a replay sends it again"
    return DeadLetter(Category.AMBIGUOUS, DeadLetterReason.AMBIGUOUS_OUTCOME, detail)


def _note_found(run: Run, known_by: str) -> None:
    number = run.state.history.next_attempt
    wait = PastWait(
        before_attempt=number,
        kind=WaitKind.LOOKUP,
        began_at=run.operation.created_at,
        until=run.now,
        delay_reasons=(known_by,),
    )
    run.state = replace(run.state, history=run.state.history.with_wait(wait))


def settle(run: Run, outcome: AttemptOutcome) -> Turns[AttemptOutcome | None]:
    """Return the outcome of an attempt whose end was unknown; None where it is to be asked for again.

    Any other outcome is returned as it is.
    """
    if not is_unknown(outcome):
        return outcome
    # The attempt may have acted, whatever the dependency answers now.
    run.state = replace(run.state, history=run.state.history.with_unclear_end())
    return (yield from _settled(run, outcome))


def _settled(run: Run, outcome: AttemptOutcome) -> Turns[AttemptOutcome | None]:
    inquiry, question = inquiry_about(outcome, run.now), question_of(run.operation, outcome.number)
    asked_at, run.waits_for = run.now, question.dependency
    state, decision = yield from _ask(run, question, inquiry.retry, outcome.number)
    inquiry = replace(inquiry, retry=state)
    follows = after_question(run.operation, outcome, inquiry, decision, asked_at=asked_at, now=run.now)
    if isinstance(follows, AttemptOutcome):
        return follows
    inquiry, wait = follows
    run.unsettled = carried(outcome, inquiry)
    yield from run.wait_beside(wait)
    if run.signals.has_come(CANCEL_EVENT):
        _leave(run, question, inquiry.retry)
    return None


def _leave(run: Run, question: OperationInput, state: RetryState) -> None:
    lease_id = lease_id_of(question, state.history.next_attempt)
    leave_gates(run.ctx, question.dependency, lease_id, state.admission)


def _ask(
    run: Run, question: OperationInput, state: RetryState, attempt: int
) -> Turns[tuple[RetryState, Decision]]:
    """Ask once, when the circuit and the limits allow it; return what follows, and the state after it."""
    asking = Asking(run.signals, question, question.dependency)
    while True:
        asked_at = run.now
        answer = yield from _call(run, state, attempt)
        if isinstance(answer, NeedsProbe) and state.admission.permit is not None:
            answer = lease_expired(run.now)
        state, action = yield from continue_retry_loop(asking, state, answer, run.now - asked_at)
        if not isinstance(action, AttemptNow | RequestProbe | RequestSlot):
            return state, action


def _call(run: Run, state: RetryState, attempt: int) -> Turns[AttemptOutcome | WorkerFailed | Blocked]:
    run.show(OperationState.RUNNING)
    number = state.history.next_attempt
    call = replace(run.attempt_call(), admission=state.admission, step=None)
    request = LookupCall(call=call.to_json(), number=number, attempt=attempt).to_json()
    answer_task = yield from run.signals.answer(
        lambda: run.ctx.call_activity(function_name(LOOK_UP), input=request), stopped_by=CANCEL_EVENT
    )
    answer = run.read_answer(answer_task, partial(answer_of, attempt=number))
    give_slot_back(run.ctx, run.operation.dependency, state.admission, answer)
    return answer
