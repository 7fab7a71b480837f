"""The polls of an operation whose request was accepted: one wait and one poll in each lap."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from durable_retry.base.names import CANCEL_EVENT, Category, DeadLetterReason, OperationState
from durable_retry.features.polling.names import POLL
from durable_retry.features.polling.rules import (
    Accepted,
    Poll,
    PollCall,
    Polled,
    accepted_in,
    carried,
    ended,
    is_accepted,
    next_poll,
    poll_of,
    unknown_end,
)
from durable_retry.hub.turns import OwnFailureError, Turns, call_until_success
from durable_retry.rules.retry.decide import DeadLetter
from durable_retry.rules.retry.history import AttemptOutcome, WaitKind

from .run import Run, goes_on_after_hold


def settle(run: Run, outcome: AttemptOutcome) -> Turns[AttemptOutcome | None]:
    """Return how the work behind an accepted request ended; None where another poll is needed.

    Any other outcome is returned as it is.
    """
    if not is_accepted(outcome):
        return outcome
    # The request was accepted, so it may have acted, whatever the polls say.
    run.state = replace(run.state, history=run.state.history.with_unclear_end())
    poll = poll_of(run.operation)
    progress = accepted_in(outcome, poll, run.operation, run.now)
    if isinstance(progress, Accepted):
        progress = yield from _after_poll(run, outcome, poll, progress)
    if isinstance(progress, AttemptOutcome):
        return None if (yield from _is_held(run, progress)) else progress
    run.unsettled = carried(outcome, progress)
    return None


def _is_held(run: Run, outcome: AttemptOutcome) -> Turns[bool]:
    """Hold an operation whose time is up, if its policy says so; resumed, it asks for its work again."""
    if outcome.category is not Category.DEADLINE_EXCEEDED:
        return False
    letter = DeadLetter(outcome.category, DeadLetterReason.DEADLINE_EXCEEDED, outcome.error or "")
    return (yield from goes_on_after_hold(run, letter))


def _after_poll(
    run: Run, outcome: AttemptOutcome, poll: Poll, accepted: Accepted
) -> Turns[Accepted | AttemptOutcome]:
    """Wait and poll once, unless someone cancels the operation; return how it stands, or ended."""
    if accepted.due_at > run.now:
        yield from run.wait_for(WaitKind.ACCEPTED, accepted.due_at, accepted.reasons)
    if run.signals.has_come(CANCEL_EVENT):
        return accepted
    try:
        polled = yield from _ask(run, poll, accepted)
    except OwnFailureError as error:
        is_cancelled = run.signals.has_come(CANCEL_EVENT)
        return accepted if is_cancelled else unknown_end(outcome, str(error), run.now)
    if polled.is_over and polled.outcome is not None:
        return ended(outcome, polled.outcome)
    polls = accepted.polls + (polled.outcome is not None)
    return next_poll(outcome, polled, poll, run.operation, run.now, polls=polls)


def _ask(run: Run, poll: Poll, accepted: Accepted) -> Turns[Polled]:
    run.show(OperationState.RUNNING)
    call = PollCall(
        call=run.attempt_call().to_json(), poll=poll.model_dump(exclude_none=True), place=accepted.place
    )
    wait = partial(run.wait_out, "the poll", heeds_deadline=True)
    answer = yield from call_until_success(run.signals, POLL, call.to_json(), wait=wait, is_answer=_is_polled)
    return Polled.from_json(answer)


def _is_polled(answer: Any) -> bool:
    return isinstance(answer, Mapping) and "place" in answer
