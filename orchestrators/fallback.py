"""Sends an operation to its fallback while the circuit of its dependency is open, and back."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from durable_retry.base.names import CANCEL_EVENT
from durable_retry.features.fallback.names import LEAVE_DEPENDENCY
from durable_retry.features.fallback.rules import (
    Departure,
    LeaveCall,
    answered,
    kept_waiting,
    may_leave,
    moved,
    route_of,
    with_fallback,
    with_later_reason,
)
from durable_retry.hub.turns import Turns
from durable_retry.rules.retry.decide import DeadLetter, Decision, Done, Wait
from durable_retry.rules.retry.loop import WorkerFailed
from durable_retry.settings.configuration import function_name

from .run import Run


def in_place_of(run: Run, decision: Decision) -> Turns[Decision | None]:
    """Return what to do in place of a wait for an open circuit; None for an attempt at the fallback at once.

    An operation that comes back from the fallback waits as decided, and then tries its first dependency.
    """
    if isinstance(decision, Done):
        return answered(run.operation, decision)
    if run.may_have_acted or not may_leave(run.operation, decision, run.now):
        return decision
    departure = yield from _leave(run, decision)
    if departure.to is None:
        return _staying(run, decision, departure)
    first = route_of(run.operation).of
    if departure.to not in {first, run.operation.dependency}:
        history = with_fallback(run.state.history, run.operation, decision, departure.to, run.now)
        run.state = replace(run.state, history=history)
    run.move_to(moved(run.operation, departure))
    if departure.to == first:
        return decision
    run.state = replace(run.state, due_at=run.now)
    return None


def _leave(run: Run, decision: Wait | DeadLetter) -> Turns[Departure]:
    request = LeaveCall(call=run.attempt_call().to_json(), is_late=isinstance(decision, DeadLetter)).to_json()
    answer_task = yield from run.signals.answer(
        lambda: run.ctx.call_activity(function_name(LEAVE_DEPENDENCY), input=request), stopped_by=CANCEL_EVENT
    )
    answer = run.read_answer(answer_task, _departure_in)
    # If the operation has left in spite of that, the next attempt says so, and this is called again.
    return Departure() if isinstance(answer, WorkerFailed) else answer


def _departure_in(answered: Any) -> Departure:
    # Another activity's answer may come in its place, see `hub.turns.call_until_success`.
    return Departure.from_json(answered) if isinstance(answered, Mapping) else Departure()


def _staying(run: Run, decision: Wait | DeadLetter, departure: Departure) -> Wait | DeadLetter:
    kept = kept_waiting(decision, departure, run.now)
    if isinstance(kept, Wait) and kept is not decision:
        history = with_later_reason(run.state.history, kept)
        run.state = replace(run.state, history=history, due_at=kept.until)
    return kept
