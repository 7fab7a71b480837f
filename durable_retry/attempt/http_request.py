"""One attempt about to be made, and one that is an HTTP request: its outcome, and what is stored of it.

A `Plan` is what an attempt calls, how much time it has, and how its errors are shown.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any, Final

import httpx

from durable_retry.attempt.bodies import body_text
from durable_retry.attempt.excerpts import FAILURE_CHARS, error_line, kept_result, refusal_texts, safe_text
from durable_retry.attempt.http_client import BoundedResponse, EscapedBaseUrlError, Request, send
from durable_retry.attempt.http_pool import SendProgress
from durable_retry.base.documents import read_answer
from durable_retry.base.foreign import names_of
from durable_retry.base.names import Category
from durable_retry.base.text import Secret
from durable_retry.base.validation import InvalidInputError, header_id
from durable_retry.plugins import features_of
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.request import is_unprotected
from durable_retry.rules.retry.classify import (
    Classification,
    Sent,
    classify_failure,
    classify_status,
    is_2xx,
    is_of_credential,
)
from durable_retry.rules.retry.constraints import attempt_seconds
from durable_retry.rules.retry.history import AttemptOutcome, FailureDetail
from durable_retry.rules.retry.retry_after import (
    RetryHint,
    advised_retry,
    parse_retry_after,
    parse_used_up,
)
from durable_retry.rules.retry.rules import ruled_answer
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import read_beside
from durable_retry.settings.configuration import app_settings

_NOTED_WITHIN: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class AttemptClock:
    """The start of an attempt and the seconds that it has, all of it."""

    started_at: datetime
    started_seconds: float
    seconds: float

    @property
    def answers_until(self) -> datetime:
        """Until when the outcome of the attempt may be noted, by the clock of another worker."""
        return self.started_at + timedelta(seconds=self.seconds) + _NOTED_WITHIN

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

    @property
    def ends_at_deadline(self) -> bool:
        """Whether the operation's deadline leaves the attempt less time than a whole one has."""
        return self.limit.seconds < self.operation.timeouts.attempt_seconds

    @property
    def limit_text(self) -> str:
        """The time that the attempt has and what sets it, for a person: `10 s (attempt_seconds)`."""
        set_by = "until the deadline" if self.ends_at_deadline else "attempt_seconds"
        return f"{self.limit.seconds:.3g} s ({set_by})"

    @property
    def waits_for_credential(self) -> bool:
        """Whether an attempt whose credential is refused waits for a new one: it is the app's own.

        It is the caller's where the request has a header or a parameter with the name of a credential.
        """
        dependency, operation = self.dependency, self.operation
        if not dependency.circuit.opens_without_credential:
            return False
        if operation.handler is not None:
            return True
        has_credential = _has_credential(dependency)
        if self.deduplicated_by is not None:  # a webhook
            return has_credential or bool(dependency.webhook.secrets)
        return has_credential and not brings_credential(operation, dependency)

    def counts(self, failure: Classification) -> bool:
        """Whether an attempt that failed so is counted: not if our side did, or waits for a credential."""
        is_refused = failure.category is Category.UNAUTHORIZED
        return failure.counted or (is_refused and not self.waits_for_credential)

    def outcome(self, **more: Any) -> AttemptOutcome:
        """Return the outcome of this attempt, ending now; without `category` it is a success."""
        outcome = AttemptOutcome(
            number=self.number,
            started_at=self.limit.started_at,
            duration_ms=self.limit.elapsed_ms,
            app_version=app_settings().app_version or None,
            **more,
        )
        is_answered = outcome.category is None or outcome.status_code is not None
        # What the operation's deadline has cut off shows nothing of its dependency; an answer does.
        is_past_deadline = self.ends_at_deadline and self.limit.seconds_left <= 0
        return replace(outcome, is_elsewhere=True) if is_past_deadline and not is_answered else outcome


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


async def attempt_request(
    plan: Plan,
    url: httpx.URL | None = None,
    outcome_of: Callable[[Plan, BoundedResponse], AttemptOutcome] | None = None,
) -> AttemptOutcome:
    """Send the operation's request once and return the outcome; a failure of the dependency never raises.

    Args:
        url: As for `send`.
        outcome_of: Returns what an answer means; None for `outcome_of_answer`.
    """
    progress = SendProgress()
    try:
        answer = await send(
            plan.dependency,
            _request_of_plan(plan),
            seconds=plan.limit.seconds_left,
            limit_bytes=app_settings().response_read_limit_bytes,
            progress=progress,
            limit_text=plan.limit_text,
            url=url,
        )
    except EscapedBaseUrlError as error:
        return plan.outcome(category=Category.MALFORMED, error=str(error))
    except _SEND_FAILURES as error:
        return _outcome_of_failure(plan, error, progress)
    return await read_beside(partial(outcome_of or outcome_of_answer, plan, answer), len(answer.body))


_BODY_PREFIXES: Final = ("content-", "if-")
"""Beginnings of the headers that describe a request's body, or its condition, and so fit no GET."""


def asking(operation: OperationInput, path: str = "") -> OperationInput:
    """Return an operation whose request is a GET, with the headers that the present request has."""
    sent = operation.request or {"headers": {}}
    headers = {
        name: value for name, value in sent["headers"].items() if not name.lower().startswith(_BODY_PREFIXES)
    }
    return replace(operation, request={"method": "GET", "path": path, "query": {}, "headers": headers})


def needs_marker(plan: Plan) -> bool:
    """Whether sending the operation's request a second time could do harm."""
    request = plan.operation.request
    return request is not None and is_unprotected(request["method"], plan.deduplication_header)


def brings_credential(operation: OperationInput, dependency: Dependency) -> bool:
    """Whether a request has a header or a parameter with the name of a credential: the caller's."""
    request = operation.request or {"headers": (), "query": ()}
    sent = set(map(header_id, request["headers"])) - dependency.reserved_headers
    return any(map(dependency.masking.hides, (*sent, *request["query"])))


def _has_credential(dependency: Dependency) -> bool:
    """Whether requests authenticate the app: by a header, or by the transport of a feature."""
    is_signed = any(feature.transport for feature in features_of(dependency.of_features))
    return (
        is_signed
        or dependency.auth is not None
        or any(isinstance(value, Secret) for value in dependency.headers.values())
    )


def _request_of_plan(plan: Plan) -> Request:
    call = plan.operation.request or {}
    reserved = plan.dependency.reserved_headers
    headers = {name: value for name, value in call["headers"].items() if header_id(name) not in reserved}
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
        rules=plan.dependency.classify,
    )
    return plan.outcome(
        category=classified.category,
        error=error_line(error, plan.dependency),
        counted=plan.counts(classified),
        did_nothing=classified.sent is Sent.NO or None,
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer means: its category, None for a success, and the wait that it asks for."""

    category: Category | None
    retry_hint: RetryHint | None
    is_ruled: bool  # whether `classify` says so
    counted: bool  # False where the app's own credential is refused

    def outcome(self, plan: Plan, **more: Any) -> AttemptOutcome:
        """Return the outcome of an attempt that got this answer, which is no success."""
        return plan.outcome(
            category=self.category or Category.TRANSIENT,
            retry_hint=self.retry_hint,
            is_ruled=self.is_ruled,
            counted=self.counted,
            **more,
        )


def verdict_on(
    plan: Plan,
    status_code: int,
    headers: Mapping[str, str],
    document: Callable[[], Any],
    *,
    unprotected: bool,
    coded: Classification | None = None,
) -> Verdict:
    """Return what an answer means to an attempt, by the dependency's `classify` and the built-in table.

    Args:
        headers: Names in lower case.
        document: Returns its body as JSON; None where it is none.
        unprotected: Whether its request must not be sent twice.
        coded: What a code beside the status means; goes before the built-in table of statuses. None for none.
    """
    read = cache(document)
    ruled = ruled_answer(plan.dependency.classify, status_code, headers, read)
    stated = ruled or (None if coded is None else coded.category)
    hint = parse_retry_after(headers, status_code=status_code, now=clock.now(), ruled=stated, document=read)
    category = stated or classify_status(
        status_code,
        retry_hint=hint,
        unprotected=unprotected,
        after_unknown=plan.operation.acted_before is True,
        advice=advised_retry(headers),
    )
    is_ruled = ruled is not None
    says_so = is_ruled or (coded is not None and not coded.counted)
    refuses = is_of_credential(category, status_code, is_ruled=says_so) and plan.waits_for_credential
    return Verdict(category, hint, is_ruled, counted=not refuses)


_DOCUMENT_BYTES: Final = 64 * 1024
"""The longest body that rules look at: an explanation of a refusal is short."""


def document_of(text: str | None) -> Any:
    """Return a text as JSON; None where it is none."""
    try:
        return None if text is None else read_answer(text)
    except InvalidInputError:
        return None


def _document_of(answer: BoundedResponse) -> Any:
    is_whole = not answer.is_cut and len(answer.body) <= _DOCUMENT_BYTES
    return document_of(body_text(answer.body, answer.content_type)) if is_whole else None


def _verdict_on_answer(plan: Plan, answer: BoundedResponse) -> Verdict:
    return verdict_on(
        plan,
        answer.status_code,
        answer.headers,
        partial(_document_of, answer),
        unprotected=needs_marker(plan),
    )


_BROKEN_OFF: Final = "the body did not come whole"


def _location_in(answer: BoundedResponse, dependency: Dependency) -> str:
    # A redirect is not followed; its query and fragment, which may hold a credential, are not shown.
    location = re.split("[?#]", answer.headers.get("location", "")[:200], maxsplit=1)[0]
    return f"Location: {safe_text(location, dependency)}" if location else ""


def outcome_of_answer(plan: Plan, answer: BoundedResponse) -> AttemptOutcome:
    """Return what an answer means to an attempt, with what is kept of it."""
    # Where no rule can change that, a 2xx is a success, and its body is read once.
    is_success = is_2xx(answer.status_code) and not plan.dependency.classify
    verdict = None if is_success else _verdict_on_answer(plan, answer)
    if verdict is None or verdict.category is None:
        limit_bytes = app_settings().response_store_limit_bytes
        pointers = (*(plan.operation.wanted or ()), *plan.operation.read_at)
        result = kept_result(answer, plan.dependency, limit_bytes, pointers)
        used_up = parse_used_up(answer.headers, now=clock.now())
        return plan.outcome(status_code=answer.status_code, result=result, retry_hint=used_up)
    # Twice what is kept, so that a secret name near the end still has its value.
    beginning = answer.body[: 2 * FAILURE_CHARS]
    is_cut = len(beginning) < len(answer.body) or answer.is_cut
    text = body_text(beginning, answer.content_type, is_cut=is_cut)
    if text is None:
        text = beginning.decode(errors="backslashreplace")
    line, body = refusal_texts(text, plan.dependency)
    says = (line, _location_in(answer, plan.dependency), _BROKEN_OFF if answer.is_broken_off else "")
    return verdict.outcome(
        plan,
        status_code=answer.status_code,
        error="; ".join(filter(None, says)) or None,
        failure=None if body is None else FailureDetail(body=body),
    )
