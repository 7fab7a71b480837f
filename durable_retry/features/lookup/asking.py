"""One question, admitted as an attempt is: a GET with the dependency's headers and credential, or a call."""

import json
from dataclasses import replace
from functools import partial
from typing import Any, Final

from durable_retry.attempt.admission import attempt_if_admitted
from durable_retry.attempt.attempt import called_operation, too_late, with_result_apart
from durable_retry.attempt.bodies import body_text
from durable_retry.attempt.excerpts import kept_result, safe_text
from durable_retry.attempt.http_client import BoundedResponse
from durable_retry.attempt.http_request import (
    Plan,
    asking,
    attempt_request,
    document_of,
    outcome_of_answer,
    start_clock,
)
from durable_retry.base.names import Category
from durable_retry.features.lookup.rules import (
    Answer,
    FormlessError,
    Lookup,
    LookupCall,
    UnaskableError,
    failure_in,
    lookup_of,
    question_of,
    question_path,
    value_found,
)
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import hook
from durable_retry.rules.operations.completion import MASKED
from durable_retry.rules.operations.operation import AttemptCall, OperationInput
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.loop import Blocked
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import app_settings, find_dependency, limits_of

_NOT_FOUND: Final = 404


async def ask_dependency(hub: TaskHub, asked: LookupCall) -> AttemptOutcome | Blocked:
    """Ask a dependency about an attempt, if its retry budget, its circuit and its limits let the question go.

    Returns:
        The outcome of the question; the result of a success is an `Answer`.
    """
    call = AttemptCall.from_json(asked.call)
    operation = await called_operation(hub, call)
    return await attempt_if_admitted(
        hub,
        find_dependency(operation.dependency),
        question_of(operation, asked.attempt),
        number=asked.number,
        admission=call.admission,
        attempt=partial(_stored_answer, operation, asked),
    )


async def _stored_answer(operation: OperationInput, asked: LookupCall) -> AttemptOutcome:
    outcome = await answer_about(operation, asked.attempt, asked.number)
    return await _with_large_result_apart(operation, asked.attempt, outcome)


async def answer_about(operation: OperationInput, attempt: int, number: int) -> AttemptOutcome:
    """Ask about an attempt without asking for admission.

    Args:
        number: Of the question.

    Returns:
        As `ask_dependency`.
    """
    limit, dependency = start_clock(operation), find_dependency(operation.dependency)
    lookup = None if dependency is None else lookup_of(limits_of(dependency, operation.handler))
    if dependency is None or lookup is None:
        return AttemptOutcome(
            number=number,
            started_at=limit.started_at,
            duration_ms=limit.elapsed_ms,
            category=Category.MALFORMED,
            error=f"{operation.dependency} has no lookup here any more",
            is_elsewhere=True,
        )
    plan = Plan(question_of(operation, attempt), number, dependency, limit)
    if (late := too_late(plan)) is not None:
        return late
    if isinstance(lookup, Lookup):
        return await _ask(lookup, operation, attempt, plan)
    ask_function = imported(f"{hook('handlers')}.lookups:ask_function")
    outcome: AttemptOutcome = await ask_function(
        replace(plan, number=attempt), operation.handler, lookup.function
    )
    if outcome.category is None:
        answer = Answer(at=limit.started_at, settle_seconds=lookup.settle_seconds, **outcome.result)
        outcome = replace(outcome, result=answer.to_json())
    return replace(outcome, number=number)


async def _ask(lookup: Lookup, operation: OperationInput, attempt: int, plan: Plan) -> AttemptOutcome:
    try:
        path = question_path(lookup, operation, attempt)
    except UnaskableError as error:
        return plan.outcome(category=Category.MALFORMED, error=str(error), is_elsewhere=True)
    question = replace(plan, operation=asking(plan.operation, path))
    return await attempt_request(question, outcome_of=partial(_outcome_of, lookup, operation))


def _outcome_of(
    lookup: Lookup, operation: OperationInput, plan: Plan, answer: BoundedResponse
) -> AttemptOutcome:
    outcome = outcome_of_answer(plan, answer)
    make_answer = partial(
        Answer,
        at=plan.limit.started_at,
        settle_seconds=lookup.settle_seconds,
        status_code=answer.status_code,
    )
    if outcome.category is Category.NOT_FOUND and answer.status_code == _NOT_FOUND and lookup.may_answer_404:
        return plan.outcome(status_code=_NOT_FOUND, result=make_answer(says="not_found").to_json())
    if outcome.category is not None:
        return outcome
    text = None if answer.is_cut else body_text(answer.body, answer.content_type)
    try:
        document = document_of(text)
        value = value_found(lookup, document)
    except FormlessError as error:
        return replace(outcome, category=Category.TRANSIENT, error=str(error), result=None)
    if value is None:
        result = make_answer(says="not_found")
    elif (why := failure_in(lookup, document)) is not None:
        result = make_answer(says="failed", why=safe_text(why, plan.dependency))
    else:
        result = make_answer(says="found", result=_result_of(value, operation, plan, answer))
    return replace(outcome, result=result.to_json())


def _result_of(value: Any, operation: OperationInput, plan: Plan, answer: BoundedResponse) -> dict[str, Any]:
    """Return the result of the operation: what was found, as the request or the handler would have it."""
    headers = {"content-type": "application/json"}
    whole = replace(answer, body=json.dumps(value).encode(), headers=headers)
    limit_bytes = app_settings().response_store_limit_bytes
    result = kept_result(whole, plan.dependency, limit_bytes, operation.wanted or ())
    if operation.handler is None:
        return result
    name = "json" if "json" in result else "body"
    handler_result = {"value": result[name]}
    if MASKED in result:
        handler_result[MASKED] = [place.replace(f"/{name}", "/value", 1) for place in result[MASKED]]
    return handler_result


async def _with_large_result_apart(
    operation: OperationInput, attempt: int, outcome: AttemptOutcome
) -> AttemptOutcome:
    if outcome.category is not None or outcome.result["says"] != "found":
        return outcome
    found = replace(outcome, number=attempt, result=outcome.result["result"])
    stored = await with_result_apart(operation, found)
    return replace(outcome, result={**outcome.result, "result": stored.result})
