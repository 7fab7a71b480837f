"""One poll: a GET with the dependency's headers and credential, while its circuit lets calls through.

It takes no place among the dependency's limits, and its circuit does not count it. The URL to ask comes from
an answer, so it must be at the host of the base URL: the credential is sent to no other.
"""

import json
from dataclasses import replace
from functools import partial
from typing import Final

import httpx

from durable_retry.attempt.attempt import called_operation, with_result_apart, without_dependency
from durable_retry.attempt.excerpts import kept_result, refusal_texts
from durable_retry.attempt.http_client import BoundedResponse, EscapedBaseUrlError, target_url
from durable_retry.attempt.http_request import Plan, asking, attempt_request, outcome_of_answer, start_clock
from durable_retry.base.names import Category
from durable_retry.circuit.cache import refusal_of
from durable_retry.features.polling.rules import SEE_OTHER, Poll, PollCall, Polled, is_over
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.operation import AttemptCall
from durable_retry.rules.retry.history import AttemptOutcome, FailureDetail
from durable_retry.settings.configuration import app_settings, find_dependency

_NO_URL: Final = (httpx.InvalidURL, ValueError)


async def poll_once(hub: TaskHub, asked: PollCall) -> Polled:
    """Ask a dependency how far the work behind an accepted request is."""
    call, poll = AttemptCall.from_json(asked.call), Poll.model_validate(asked.poll)
    operation = await called_operation(hub, call)
    dependency = find_dependency(operation.dependency)
    if dependency is None:
        outcome = without_dependency(operation, call.attempt, start_clock(operation))
        return Polled(place=asked.place, outcome=outcome)
    refused = await refusal_of(hub, dependency, operation.operation_id, operation.limit_key)
    if refused is not None:
        return Polled(place=asked.place, refused=refused)
    plan = Plan(
        replace(asking(operation), acted_before=None), call.attempt, dependency, start_clock(operation)
    )
    try:
        url = place_url(dependency, (operation.request or {})["path"], asked.place)
    except EscapedBaseUrlError as error:
        outcome = plan.outcome(category=Category.AMBIGUOUS, error=str(error))
        return Polled(place=asked.place, outcome=outcome, is_over=True)
    outcome = await attempt_request(plan, url, partial(_outcome_of, poll))
    if not is_over(poll, outcome):
        named = None if outcome.category is not None else _place_in(poll, outcome)
        return Polled(place=str(url) if named is None else _place_from(url, named), outcome=outcome)
    return Polled(place=asked.place, outcome=await with_result_apart(operation, outcome), is_over=True)


def place_url(dependency: Dependency, path: str, place: str) -> httpx.URL:
    """Return where to ask, by a reference relative to the URL of the request (RFC 9110, section 10.2.2).

    Raises:
        EscapedBaseUrlError: It is none, or at another host than the dependency's.
    """
    base = target_url(dependency, path)
    try:
        url = base.join(place).copy_with(fragment=None)
    except _NO_URL:
        raise EscapedBaseUrlError("the place to ask that it names is not a URL") from None
    if (url.scheme, url.host, url.port) != (base.scheme, base.host, base.port) or url.userinfo:
        raise EscapedBaseUrlError(f"the place to ask that it names is not at the host of {dependency.name}")
    return url


def _place_from(url: httpx.URL, named: str) -> str:
    """Return in full the place that an answer names; what is no URL stays, and the next poll refuses it."""
    try:
        return str(url.join(named))
    except _NO_URL:
        return named


def _place_in(poll: Poll, outcome: AttemptOutcome) -> str | None:
    if outcome.status_code in SEE_OTHER:
        return str(outcome.result["headers"]["location"])
    return poll.place_in(outcome.result)


def _outcome_of(poll: Poll, plan: Plan, answer: BoundedResponse) -> AttemptOutcome:
    if answer.status_code in SEE_OTHER and "location" in answer.headers:
        result = kept_result(answer, plan.dependency, app_settings().response_store_limit_bytes)
        return plan.outcome(status_code=answer.status_code, result=result)
    outcome = outcome_of_answer(plan, answer)
    if outcome.category is not None or not poll.has_failed(outcome.result):
        return outcome
    line, body = refusal_texts(json.dumps(outcome.result.get("json")), plan.dependency)
    return plan.outcome(
        category=Category.BUSINESS_RULE,
        status_code=answer.status_code,
        error=f"the work failed: {line}",
        failure=None if body is None else FailureDetail(body=body),
    )
