"""One attempt of an operation that is a Python handler."""

import asyncio
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from activities.downstream import client_for
from activities.handling import MAX_WRITES, Call, Outcome, Throttled, Transient
from activities.masking import error_line
from activities.plan import Plan
from engine.classify import classify_handler_failure
from engine.models import Event
from engine.operation import AttemptOutcome
from engine.problem import InvalidInputError
from engine.retry_after import hint_from_handler
from engine.validation import validated
from engine.vocabulary import Category
from stores.handler_registry import Handler


class HandlerReturnError(ValueError):
    """What a handler returned can never be committed; it is the handler that has to change."""


async def attempt_handler(plan: Plan, handler: Handler) -> AttemptOutcome:
    """Run a handler once, and say what came of it; whatever it raises becomes an outcome."""
    call = Call(
        key=plan.operation.key,
        attempt=plan.number,
        seconds_left=plan.limit.seconds_left,
        correlation_id=plan.operation.correlation_id,
        client=client_for(plan.dependency),
    )
    try:
        given = handler.input_model.model_validate(plan.operation.input)
        async with asyncio.timeout(plan.limit.seconds_left):
            returned = await handler.function(given, call)
        return plan.outcome(result=_result(returned))
    except (ValidationError, HandlerReturnError) as error:
        return plan.outcome(category=Category.MALFORMED, error=error_line(error, plan.dependency))
    except Exception as error:  # noqa: BLE001 - the contract: any other exception of a handler is transient
        return _raised(plan, error)


def _raised(plan: Plan, error: Exception) -> AttemptOutcome:
    names = [cls.__name__ for cls in type(error).__mro__]
    verdict = classify_handler_failure(names, overrides=plan.dependency.classify)
    seconds = error.retry_after if isinstance(error, Transient | Throttled) else None
    return plan.outcome(
        category=verdict.category,
        error=error_line(error, plan.dependency),
        retry_hint=None if seconds is None else hint_from_handler(seconds),
        counted=verdict.counted,
    )


def _result(returned: Any) -> dict[str, Any]:
    """Return a handler's success as plain JSON, its writes and events beside the value for the commit.

    Raises:
        HandlerReturnError: What it returned cannot be stored as it is.
    """
    outcome = returned if isinstance(returned, Outcome) else Outcome(returned)
    writes = list(outcome.writes)
    if len(writes) > MAX_WRITES:
        raise HandlerReturnError(f"{len(writes)} writes; one transaction takes {MAX_WRITES}")
    if len({(write.table, write.partition_key) for write in writes}) > 1:
        raise HandlerReturnError("all writes of one outcome must share one table and partition_key")
    try:
        result: dict[str, Any] = {"value": TypeAdapter(Any).dump_python(outcome.value, mode="json")}
        events = [validated(Event, dict(event)).to_json() for event in outcome.events]
    except (PydanticSerializationError, InvalidInputError) as error:
        raise HandlerReturnError(f"the returned value or events: {error}") from error
    if writes:
        result["writes"] = [write.to_json() for write in writes]
    if events:
        result["events"] = events
    return result
