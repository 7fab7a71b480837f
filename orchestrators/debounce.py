"""The wait of an operation with a debounce key: until nothing newer has come, or something replaces it."""

from dataclasses import replace
from typing import Any

from durable_retry.engine.base.names import ARRIVE, BEGIN, CANCEL_EVENT, REPLACED_EVENT, WITHDRAW
from durable_retry.engine.operations.debounce import Debounce, DebouncePlace, DebounceRequest
from durable_retry.engine.retry.decide import MAX_OWN_FAILURES
from durable_retry.runtime.turns import Turns, call_entity
from durable_retry.stores.operations.entities import debounce_id

from .run import Run


def wait_until_quiet(run: Run, debounce: Debounce) -> Turns[str | None]:
    """Wait until the operation begins, unless someone cancels it, starts it now or submits a later one.

    Returns:
        The operation that replaced it; None when it begins or was cancelled.

    Raises:
        TaskFailedError: The entity does not answer.
    """
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
    replaced_by = yield from run.wait_for_quiet(place.due_at)
    if replaced_by is not None:
        return replaced_by
    if run.signals.has_come(CANCEL_EVENT):
        run.ctx.signal_entity(debounce_id(debounce), WITHDRAW, request)
        return None
    return (yield from _ask(run, debounce, BEGIN, request)).replaced_by


def _ask(run: Run, debounce: Debounce, operation: str, request: dict[str, Any]) -> Turns[DebouncePlace]:
    answer = yield from call_entity(
        run.signals, debounce_id(debounce), operation, request, lambda failures: failures >= MAX_OWN_FAILURES
    )
    return DebouncePlace.from_json(answer)
