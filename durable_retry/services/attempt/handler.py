"""One attempt that is a handler: it is run, and what it returns or raises becomes an outcome."""

import asyncio
import logging
import math
import re
from typing import Any, Final

import httpx
from azure.core.exceptions import AzureError
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from durable_retry import clock
from durable_retry.engine.base.names import Category
from durable_retry.engine.base.validation import InvalidInputError, validated
from durable_retry.engine.operations.request import Event
from durable_retry.engine.retry.classify import classify_handler_failure, classify_status
from durable_retry.engine.retry.decide import MAX_OWN_FAILURES
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.engine.retry.retry_after import hint_from_handler, parse_retry_after
from durable_retry.handlers import (
    MAX_WRITES,
    Call,
    Handler,
    Outcome,
    TableWrite,
    Throttled,
    Transient,
)
from durable_retry.services.attempt.http_client import client_for
from durable_retry.services.attempt.http_request import Plan, error_line
from durable_retry.stores.operation_writes import count_start
from durable_retry.telemetry.spans import ATTEMPT as ATTEMPT_NUMBER
from durable_retry.telemetry.spans import fields_of

_BUGS: Final = (
    TypeError,
    AttributeError,
    NameError,
    LookupError,
    AssertionError,
    ImportError,
    NotImplementedError,
    RecursionError,
    ZeroDivisionError,
)
"""Exceptions that a change of the handler ends, and no repetition."""

_TABLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")
_KEY: Final = re.compile(r"[^/\\#?\x00-\x1f\x7f-\x9f]{0,512}")
_PROPERTY: Final = re.compile(r"[^\W\d]\w{0,254}")
_TEXT_CHARS: Final = 32_768
"""Azure Tables store text as UTF-16, 64 KiB for one property."""

_log = logging.getLogger(__name__)


class HandlerReturnError(ValueError):
    """What a handler returned can never be committed; it is the handler that has to change."""


async def attempt_handler(plan: Plan, handler: Handler) -> AttemptOutcome:
    """Run a handler once and return the outcome; whatever it raises becomes an outcome."""
    call = Call(
        key=plan.operation.sent_key,
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
    except httpx.HTTPStatusError as error:
        return _refused_by_dependency(plan, error)
    except Exception as error:  # noqa: BLE001 - the contract: any other exception of a handler is transient
        return _raised(plan, handler, error)


def _refused_by_dependency(plan: Plan, error: httpx.HTTPStatusError) -> AttemptOutcome:
    """Return the outcome of an answer on which the handler called `raise_for_status`, as for a request."""
    status_code = error.response.status_code
    hint = parse_retry_after(error.response.headers, status_code=status_code, now=clock.now())
    category = classify_status(
        status_code, retry_hint=hint, unprotected=False, overrides=plan.dependency.classify
    )
    return plan.outcome(
        category=category or Category.TRANSIENT,
        status_code=status_code,
        error=error_line(error, plan.dependency),
        retry_hint=hint,
    )


def _raised(plan: Plan, handler: Handler, error: Exception) -> AttemptOutcome:
    names = [cls.__name__ for cls in type(error).__mro__]
    if isinstance(error, _BUGS) and not plan.dependency.classify.keys() & set(names):
        _log.error(
            "handler %s has a bug, seen in %s",
            handler.name,
            plan.operation.operation_id,
            exc_info=error,
            extra=fields_of(plan.operation, {}),
        )
        line = f"bug in handler {handler.name}: {error_line(error, plan.dependency)}"
        return plan.outcome(category=Category.MALFORMED, error=line, is_our_bug=True)
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
    for write in writes:
        _check(write)
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


def _check(write: TableWrite) -> None:
    """Refuse a write that storage would refuse, or that cannot be stored as JSON until the commit.

    Raises:
        HandlerReturnError: With the first reason.
    """
    if not isinstance(write, TableWrite):
        raise HandlerReturnError(f"a write is a {type(write).__name__}, not a TableWrite")
    if not (isinstance(write.table, str) and _TABLE.fullmatch(write.table)):
        raise HandlerReturnError(f"{write.table!r} is no name of a table")
    for key in (write.partition_key, write.row_key):
        if not (isinstance(key, str) and _KEY.fullmatch(key)):
            raise HandlerReturnError(f"{key!r} is no key of a row in {write.table}")
    for name, value in write.values.items():
        if not (isinstance(name, str) and _PROPERTY.fullmatch(name)):
            raise HandlerReturnError(f"{name!r} is no name of a property in {write.table}")
        if not _is_storable(value):
            raise HandlerReturnError(
                f"property {name} of {write.table} is {type(value).__name__} {value!r:.80}"
            )


def _is_storable(value: object) -> bool:
    """Whether a property's value is text, a number that fits, or a boolean; dates go in as text."""
    match value:
        case bool():
            return True
        case str():
            return len(value.encode("utf-16-le", "surrogatepass")) <= 2 * _TEXT_CHARS
        case int():
            return -(2**63) <= value < 2**63
        case float():
            return math.isfinite(value)
        case _:
            return False


async def begun_too_often(plan: Plan, handler: Handler) -> AttemptOutcome | None:
    """Note that a handler is about to run; return the outcome that ends it when it began too often.

    The task hub gives an attempt whose process died to another worker and does not count: a handler that ends
    its process each time would be run for ever. An attempt that ends is not begun again under its number.
    """
    starts = await _noted_start(plan)
    if starts < MAX_OWN_FAILURES:
        return None
    error = f"handler {handler.name} began this attempt {starts - 1} times and never ended it"
    return plan.outcome(category=Category.AMBIGUOUS, error=f"{error}: its process died")


async def _noted_start(plan: Plan) -> int:
    """Return how often an attempt has begun; storage that does not answer holds no handler up."""
    try:
        return await count_start(plan.operation.run_id, plan.number, plan.limit.started_at)
    except AzureError as error:
        _log.warning(
            "the start of %s, attempt %d, was not noted: %s",
            plan.operation.run_id,
            plan.number,
            type(error).__name__,
            extra=fields_of(plan.operation, {ATTEMPT_NUMBER: plan.number}),
        )
        return 1
