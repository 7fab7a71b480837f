"""The wait of an operation with a debounce key: until nothing newer has come, or something replaces it."""

from dataclasses import replace
from typing import Any

from durabletask import task

from durable_retry.base.names import CANCEL_EVENT, Category, DeadLetterReason
from durable_retry.features.debounce.names import ARRIVE, BEGIN, REPLACED_EVENT, WITHDRAW
from durable_retry.features.debounce.rules import Debounce, DebouncePlace, DebounceRequest, debounce_of
from durable_retry.features.debounce.store import debounce_id
from durable_retry.hub.turns import Turns, call_entity
from durable_retry.rules.retry.decide import MAX_OWN_FAILURES, DeadLetter

from .run import Listener, Run, Withdrawn


def begin(run: Run) -> Turns[DeadLetter | Withdrawn | None]:
    """Wait until the operation begins, unless someone cancels it, starts it now or submits a later one.

    Returns:
        How it ends in place of that; None when it begins or was cancelled.
    """
    debounce = debounce_of(run.operation)
    if debounce is None:
        return None
    try:
        replaced_by = yield from _wait_until_quiet(run, debounce)
    except task.TaskFailedError as error:
        detail = f"nothing was sent: its debounce key could not be asked for: {error.details.message}"
        return DeadLetter(Category.TRANSIENT, DeadLetterReason.RETRIES_EXHAUSTED, detail)
    return None if replaced_by is None else Withdrawn({"replaced_by": replaced_by})


def _wait_until_quiet(run: Run, debounce: Debounce) -> Turns[str | None]:
    request = DebounceRequest(
        operation_id=run.operation.operation_id,
        accepted_at=debounce.accepted_at,
        seconds=debounce.seconds,
        max_seconds=debounce.max_seconds,
    ).to_json()
    place = yield from _ask(run, debounce, ARRIVE, request)
    if place.replaced_by is not None:
        return place.replaced_by
    if place.replaces is not None:
        # Should the event be lost, that operation asks at the end of its wait.
        run.ctx.send_event(place.replaces, REPLACED_EVENT, data=request)
    run.operation = replace(run.operation, start_at=max(place.due_at, debounce.accepted_at))
    if place.begins:
        return None
    replaced_by = yield from _wait_for_later(run, debounce, place)
    if replaced_by is not None:
        return replaced_by
    if run.signals.has_come(CANCEL_EVENT):
        run.ctx.signal_entity(debounce_id(debounce), WITHDRAW, request)
        return None
    return (yield from _ask(run, debounce, BEGIN, request)).replaced_by


def _wait_for_later(run: Run, debounce: Debounce, place: DebouncePlace) -> Turns[str | None]:
    """Wait as for a start; return the id of a later operation that has come meanwhile, else None."""
    replaced_by: str | None = None

    def is_replaced(event: Any) -> bool:
        nonlocal replaced_by
        replaced_by = debounce.replaced_by(event)
        return replaced_by is not None

    run.listener = Listener(REPLACED_EVENT, is_replaced, ends_pause=True)
    yield from run.wait_for_start(place.due_at)
    run.listener = None
    if replaced_by is None and run.signals.has_come(REPLACED_EVENT):
        is_replaced(run.signals.take(REPLACED_EVENT))
    return replaced_by


def _ask(run: Run, debounce: Debounce, operation: str, request: dict[str, Any]) -> Turns[DebouncePlace]:
    answer = yield from call_entity(
        run.signals, debounce_id(debounce), operation, request, lambda failures: failures >= MAX_OWN_FAILURES
    )
    return DebouncePlace.from_json(answer)
