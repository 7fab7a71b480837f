"""One attempt of an operation that is an HTTP request."""

from typing import Final

import httpx

from activities.downstream import Answer, EscapedBaseUrlError, Request, Sending, client_for, send, target_url
from activities.masking import error_line
from activities.plan import Plan
from activities.results import error_text, kept_result
from engine.classify import classify_failure, classify_status, is_unprotected
from engine.dependency import Dependency
from engine.operation import AttemptOutcome
from engine.retry_after import parse_retry_after
from engine.secret import Secret
from engine.vocabulary import Category
from stores import clock
from stores.settings import app_settings

SECONDS_LEFT_HEADER: Final = "X-Seconds-Left"
ATTEMPT_HEADER: Final = "X-Attempt"
CORRELATION_HEADER: Final = "X-Correlation-Id"

_TROUBLE: Final = (
    httpx.HTTPError,
    httpx.InvalidURL,
    httpx.StreamError,
    OSError,  # TimeoutError is one
    ValueError,  # a header or a body that cannot be encoded
)


async def attempt_request(plan: Plan) -> AttemptOutcome:
    """Send the operation's request once, and say what came of it; never raises for downstream trouble."""
    sending = Sending()
    try:
        answer = await send(
            client_for(plan.dependency),
            _request(plan),
            seconds=plan.limit.seconds_left,
            limit_bytes=app_settings().read_limit_bytes,
            sending=sending,
        )
    except EscapedBaseUrlError as error:
        return plan.outcome(category=Category.MALFORMED, error=str(error))
    except _TROUBLE as error:
        return _failed(plan, error, sending)
    return _answered(plan, answer)


def needs_marker(plan: Plan) -> bool:
    """Tell whether sending the operation's request a second time could do harm."""
    request = plan.operation.request
    return request is not None and is_unprotected(request["method"], plan.deduplication_header)


def reserved_headers(dependency: Dependency) -> frozenset[str]:
    """Return the headers, in lower case, that a caller must not set: they are credentials, or the key."""
    secret = (name for name, value in dependency.headers.items() if isinstance(value, Secret))
    auth = () if dependency.auth is None else (dependency.auth.header,)
    return frozenset(name.lower() for name in (*secret, *auth, dependency.idempotency.header) if name)


def _request(plan: Plan) -> Request:
    call = plan.operation.request or {}
    reserved = reserved_headers(plan.dependency)
    headers = {name: value for name, value in call["headers"].items() if name.lower() not in reserved}
    return Request(
        method=call["method"],
        url=target_url(plan.dependency, call["path"]),
        headers=headers | _own_headers(plan),
        params={name: value for name, value in call["query"].items() if value is not None},
        json=call.get("json"),
        has_json="json" in call,
        body=call.get("body"),
    )


def _own_headers(plan: Plan) -> dict[str, str]:
    """Return what every attempt carries: the same key, and what is left of its time."""
    operation = plan.operation
    headers = {SECONDS_LEFT_HEADER: f"{plan.limit.seconds_left:.3f}", ATTEMPT_HEADER: str(plan.number)}
    if plan.dependency.idempotency.header:
        headers[plan.dependency.idempotency.header] = operation.key
    if operation.correlation_id is not None and operation.correlation_id.isascii():
        headers[CORRELATION_HEADER] = operation.correlation_id
    return headers


def _failed(plan: Plan, error: BaseException, sending: Sending) -> AttemptOutcome:
    verdict = classify_failure(
        [*sending.names_before(error), *(cls.__name__ for cls in type(error).__mro__)],
        unprotected=needs_marker(plan),
        overrides=plan.dependency.classify,
    )
    return plan.outcome(
        category=verdict.category, error=error_line(error, plan.dependency), counted=verdict.counted
    )


def _answered(plan: Plan, answer: Answer) -> AttemptOutcome:
    hint = parse_retry_after(answer.headers, status_code=answer.status_code, now=clock.now())
    category = classify_status(
        answer.status_code,
        retry_hint=hint,
        unprotected=needs_marker(plan),
        overrides=plan.dependency.classify,
    )
    if category is None:
        result = kept_result(answer, plan.dependency, app_settings().store_limit_bytes)
        return plan.outcome(status_code=answer.status_code, result=result)
    return plan.outcome(
        category=category,
        status_code=answer.status_code,
        error=error_text(answer, plan.dependency) or None,
        retry_hint=hint,
    )
