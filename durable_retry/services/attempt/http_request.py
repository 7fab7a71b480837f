"""One attempt about to be made, and one that is an HTTP request: its outcome, and what is stored of it.

A `Plan` is what an attempt calls, how much time it has, and how its errors are shown.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from traceback import format_exception
from typing import Any, Final

import httpx

from durable_retry import clock
from durable_retry.engine.base.foreign import json_problems, look, name_of, plain_text, read_json, text_of
from durable_retry.engine.base.names import Category
from durable_retry.engine.base.text import MASK, Secret
from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.config.dependency import Dependency
from durable_retry.engine.operations.completion import VALUES, values_at
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.request import is_unprotected
from durable_retry.engine.retry.classify import Sent, classify_failure, classify_status, names_of
from durable_retry.engine.retry.constraints import attempt_seconds
from durable_retry.engine.retry.history import AttemptOutcome, FailureDetail
from durable_retry.engine.retry.retry_after import parse_retry_after, parse_used_up
from durable_retry.engine.sources import DATA_PREFIX
from durable_retry.services.attempt.bodies import body_text, message_in
from durable_retry.services.attempt.http_client import BoundedResponse, EscapedBaseUrlError, Request, send
from durable_retry.services.attempt.http_pool import SendProgress
from durable_retry.settings.configuration import app_settings

# A shorter value protects nothing, and masking it would riddle innocent text.
_SHORTEST_SECRET_CHARS: Final = 6

ERROR_CHARS: Final = 300
"""The line of an error in a status document has no more."""


@dataclass(frozen=True, slots=True)
class AttemptClock:
    """The start of an attempt and the seconds that it has, all of it."""

    started_at: datetime
    started_seconds: float
    seconds: float

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the start."""
        return round((clock.monotonic_seconds() - self.started_seconds) * 1000, 1)

    @property
    def seconds_left(self) -> float:
        """Seconds until the attempt is cut off; 0 when it is."""
        return max(0.0, self.seconds - (clock.monotonic_seconds() - self.started_seconds))


def start_clock(operation: OperationInput) -> AttemptClock:
    """Begin to measure an attempt."""
    now = clock.now()
    seconds = attempt_seconds(operation.timeouts, operation.deadline_at, now)
    return AttemptClock(now, clock.monotonic_seconds(), seconds)


@dataclass(frozen=True, slots=True)
class Plan:
    """One attempt about to be made.

    Attributes:
        dependency: What it calls, secrets included.
        deduplicated_by: The header on which the receiver recognises a repeated request; None means the one
            that the dependency's settings name.
    """

    operation: OperationInput
    number: int
    dependency: Dependency
    limit: AttemptClock
    deduplicated_by: str | None = None

    @property
    def deduplication_header(self) -> str:
        """The header on which the receiver recognises a repeated request; "" when it does not."""
        if self.deduplicated_by is not None:
            return self.deduplicated_by
        return self.dependency.idempotency.header

    def outcome(self, **more: Any) -> AttemptOutcome:
        """Return the outcome of this attempt, ending now; without `category` it is a success."""
        return AttemptOutcome(
            number=self.number, started_at=self.limit.started_at, duration_ms=self.limit.elapsed_ms, **more
        )


def masked(text: str, dependency: Dependency) -> str:
    """Return a text without the dependency's credentials: some services echo what they were sent."""
    for secret in _hidden_of(dependency).secrets:
        text = text.replace(secret, MASK)
    return text


@dataclass(frozen=True, slots=True)
class _Hidden:
    """Header names that callers cannot set, and texts to mask, of one dependency.

    Attributes:
        made_for: The dependency; another object of the same name is another configuration.
        secrets: Texts to mask, the longest first.
        headers: Names, in lower case, that a caller must not set: they are credentials, or the key.
    """

    made_for: Dependency
    secrets: list[str]
    headers: frozenset[str]


_hidden: Final[dict[str, _Hidden]] = {}


def _hidden_of(dependency: Dependency) -> _Hidden:
    # Computed once: every attempt uses them several times.
    known = _hidden.get(dependency.name)
    if known is None or known.made_for is not dependency:
        known = _Hidden(dependency, _secret_texts(dependency), _reserved_headers(dependency))
        _hidden[dependency.name] = known
    return known


def error_line(error: BaseException, dependency: Dependency) -> str:
    """Return an exception's name and message as one line, without secrets."""
    message = " ".join(text_of(error).split())
    line = f"{name_of(error)}: {message}" if message else name_of(error)
    return safe_text(line, dependency)[:ERROR_CHARS]


def _secret_texts(dependency: Dependency) -> list[str]:
    # The longest first; of `Bearer abc` also the part after the scheme.
    values = [value for value in dependency.headers.values() if isinstance(value, Secret)]
    if dependency.auth is not None:
        values.append(dependency.auth.value)
    texts = {part for value in values for part in (value.reveal(), value.reveal().rpartition(" ")[2])}
    return sorted((text for text in texts if len(text) >= _SHORTEST_SECRET_CHARS), key=len, reverse=True)


# Only headers that help a person are stored: others may hold cookies and tokens.
_KEPT_HEADERS: Final = frozenset(
    {
        "content-type",
        "content-length",
        "content-language",
        "etag",
        "last-modified",
        "location",
        "date",
        "x-request-id",
        "request-id",
        "x-ms-request-id",
        "x-correlation-id",
        "traceparent",
    }
)

_HEADER_CHARS: Final = 1_024


def kept_result(
    answer: BoundedResponse, dependency: Dependency, limit_bytes: int, pointers: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the `result` of a success: `json` when the whole body is JSON and small enough, else `body`.

    A body that was cut, in reading or here, carries `"truncated": true`. One that is cut here has the wanted
    parts of its JSON in `values`. One that is no text is kept in base64, as a data URL, and a `note` says so;
    another `note` says that the answer's `Content-Encoding` was false.

    Args:
        limit_bytes: The most of the body that is kept.
        pointers: JSON pointers into the result as it would be without a limit.
    """
    headers = {
        name: masked(value, dependency)[:_HEADER_CHARS]
        for name, value in answer.headers.items()
        if name in _KEPT_HEADERS
    }
    result: dict[str, Any] = {"status_code": answer.status_code, "headers": headers}
    if answer.is_undecoded:
        result["note"] = "the answer's Content-Encoding is false: the body is what could be decoded"
    if not answer.body:
        return result
    is_cut = answer.is_cut or len(answer.body) > limit_bytes
    text = body_text(answer.body[:limit_bytes], _content_type(answer), is_cut=is_cut)
    if text is None:
        return (
            {"note": "the body is no text in UTF-8 or the declared charset"}
            | result
            | _as_bytes(answer, dependency, limit_bytes)
        )
    text = masked(text, dependency)
    if is_cut:
        cut = result | {"body": text, "truncated": True}
        if not pointers or answer.is_cut:
            return cut
        whole = masked(body_text(answer.body, _content_type(answer)) or "", dependency)
        return cut | {VALUES: values_at(result | _json_of(answer, whole), pointers)}
    return result | (_json_of(answer, text) or {"body": text})


def _as_bytes(answer: BoundedResponse, dependency: Dependency, limit_bytes: int) -> dict[str, Any]:
    # Credentials are ASCII, and Latin-1 has a character for every byte.
    safe = masked(answer.body.decode("latin-1"), dependency).encode("latin-1", errors="replace")
    most = limit_bytes // 4 * 3  # what base64 makes of it fits the limit
    kept = {"body": DATA_PREFIX + base64.b64encode(safe[:most]).decode()}
    return kept | {"truncated": True} if answer.is_cut or len(safe) > most else kept


def _content_type(answer: BoundedResponse) -> str:
    return answer.headers.get("content-type", "")


def _json_of(answer: BoundedResponse, text: str) -> dict[str, Any]:
    if not _is_declared_json(answer):
        return {}
    try:
        document = read_json(text)
    except InvalidInputError:
        return {}
    return {} if json_problems(document) else {"json": document}


def error_text(body: str, dependency: Dependency) -> str:
    """Return the beginning of what a refusal says as one line, for a person; "" when it says nothing."""
    return safe_text(" ".join(message_in(body).split()), dependency)[:200]


_FAILURE_CHARS: Final = 4_000
"""An attempt's failure travels with the operation until the next attempt."""
_FAILURE_FRAMES: Final = 40  # the last ones, about as many as fit: to format thousands would take seconds


def failure_body(body: str, dependency: Dependency) -> str | None:
    """Return the beginning of a refusal's body as it is; None where its line says as much."""
    text = safe_text(body, dependency).strip()[:_FAILURE_CHARS]
    return None if text == error_text(body, dependency) else text


def failure_traceback(error: BaseException, dependency: Dependency) -> str:
    """Return where a handler failed: the end of the traceback, without secrets."""
    lines = look(lambda: format_exception(error, limit=-_FAILURE_FRAMES), [name_of(error)])
    # More than is kept, so that no credential is cut before it is masked.
    return safe_text(plain_text("".join(lines)[-2 * _FAILURE_CHARS :]), dependency)[-_FAILURE_CHARS:]


def safe_text(text: str, dependency: Dependency) -> str:
    """Return a text without credentials and values of secret names."""
    return dependency.masking.text(masked(text, dependency))


def _is_declared_json(answer: BoundedResponse) -> bool:
    media_type = _content_type(answer).partition(";")[0].strip().lower()
    return media_type.endswith(("/json", "+json"))


SECONDS_LEFT_HEADER: Final = "X-Seconds-Left"
ATTEMPT_HEADER: Final = "X-Attempt"
CORRELATION_HEADER: Final = "X-Correlation-Id"

_SEND_FAILURES: Final = (
    httpx.HTTPError,
    httpx.InvalidURL,
    httpx.StreamError,
    OSError,  # TimeoutError is one
    ValueError,  # a header or a body that cannot be encoded
)


async def attempt_request(plan: Plan) -> AttemptOutcome:
    """Send the operation's request once and return the outcome; a failure of the dependency never raises."""
    progress = SendProgress()
    try:
        answer = await send(
            plan.dependency,
            _request_of_plan(plan),
            seconds=plan.limit.seconds_left,
            limit_bytes=app_settings().response_read_limit_bytes,
            progress=progress,
        )
    except EscapedBaseUrlError as error:
        return plan.outcome(category=Category.MALFORMED, error=str(error))
    except _SEND_FAILURES as error:
        return _outcome_of_failure(plan, error, progress)
    return _outcome_of_answer(plan, answer)


def needs_marker(plan: Plan) -> bool:
    """Whether sending the operation's request a second time could do harm."""
    request = plan.operation.request
    return request is not None and is_unprotected(request["method"], plan.deduplication_header)


def _reserved_headers(dependency: Dependency) -> frozenset[str]:
    secret = (name for name, value in dependency.headers.items() if isinstance(value, Secret))
    auth = () if dependency.auth is None else (dependency.auth.header,)
    return frozenset(name.lower() for name in (*secret, *auth, dependency.idempotency.header) if name)


def _request_of_plan(plan: Plan) -> Request:
    call = plan.operation.request or {}
    reserved = _hidden_of(plan.dependency).headers
    headers = {name: value for name, value in call["headers"].items() if name.lower() not in reserved}
    return Request(
        method=call["method"],
        path=call["path"],
        headers=headers | own_headers(plan, plan.operation.sent_key),
        params={name: value for name, value in call["query"].items() if value is not None},
        json=call.get("json"),
        has_json="json" in call,
        body=call.get("body"),
    )


def own_headers(plan: Plan, key: str) -> dict[str, str]:
    """Return what every request of an attempt carries: the same key, and the seconds that are left."""
    operation = plan.operation
    headers = {SECONDS_LEFT_HEADER: f"{plan.limit.seconds_left:.3f}", ATTEMPT_HEADER: str(plan.number)}
    if plan.dependency.idempotency.header:
        headers[plan.dependency.idempotency.header] = key
    if operation.correlation_id is not None and operation.correlation_id.isascii():
        headers[CORRELATION_HEADER] = operation.correlation_id
    return headers


def _outcome_of_failure(plan: Plan, error: BaseException, progress: SendProgress) -> AttemptOutcome:
    classified = classify_failure(
        [*progress.precise_names(error), *names_of(error)],
        unprotected=needs_marker(plan),
        overrides=plan.dependency.classify,
    )
    return plan.outcome(
        category=classified.category,
        error=error_line(error, plan.dependency),
        counted=classified.counted,
        never_sent=classified.sent is Sent.NO or None,
    )


def _outcome_of_answer(plan: Plan, answer: BoundedResponse) -> AttemptOutcome:
    hint = parse_retry_after(answer.headers, status_code=answer.status_code, now=clock.now())
    category = classify_status(
        answer.status_code,
        retry_hint=hint,
        unprotected=needs_marker(plan),
        after_unknown=plan.operation.acted_before is True,
        overrides=plan.dependency.classify,
    )
    if category is None:
        limit_bytes = app_settings().response_store_limit_bytes
        result = kept_result(answer, plan.dependency, limit_bytes, plan.operation.wanted or ())
        used_up = parse_used_up(answer.headers, now=clock.now())
        return plan.outcome(status_code=answer.status_code, result=result, retry_hint=used_up)
    # More than is kept, so that no credential is cut before it is masked.
    shown = answer.body[: 2 * _FAILURE_CHARS]
    text = body_text(shown, _content_type(answer), is_cut=len(shown) < len(answer.body) or answer.is_cut)
    if text is None:
        text = shown.decode(errors="backslashreplace")
    body = failure_body(text, plan.dependency)
    return plan.outcome(
        category=category,
        status_code=answer.status_code,
        error=error_text(text[:1_024], plan.dependency) or None,
        retry_hint=hint,
        failure=None if body is None else FailureDetail(body=body),
    )
