"""What the client sends and receives, and its errors. A test holds the models to the OpenAPI document."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypedDict

import httpx
from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from durable_retry.engine.operations.request import Event

FINISHED: Final = frozenset({"succeeded", "dead_lettered", "cancelled"})


class OperationFields(TypedDict, total=False):
    """The body of an operation; what is left out has the meaning of the API.

    Attributes:
        dependency: Whose policy and circuit it uses; with `request`.
        request: `method` (POST when left out), `path`, `query`, `headers`, `json` or `body`.
        handler: In place of both, the name of a handler.
        input: For the handler, any JSON.
        key: Of the operation, 1 to 255 visible ASCII characters.
        correlation_id: Name of the wider piece of work.
        deadline_seconds: For the whole operation; 0 for none.
        retry: Changes of the dependency's policy.
        on_success: Events to send when it succeeds.
    """

    dependency: str
    request: Mapping[str, Any]
    handler: str
    input: Any
    key: str
    correlation_id: str
    deadline_seconds: float
    retry: Mapping[str, Any]
    on_success: Iterable[Mapping[str, Any] | Event]


def operation_document(fields: OperationFields) -> dict[str, Any]:
    """Return the body of an operation as JSON."""
    document: dict[str, Any] = dict(fields)
    if "request" in fields:
        document["request"] = {"method": "POST", **fields["request"]}
    if "on_success" in fields:
        events = fields["on_success"]
        document["on_success"] = [each.to_json() if isinstance(each, Event) else each for each in events]
    return document


class ReplayFields(TypedDict, total=False):
    """How a dead letter is replayed: as it was, unless `request` or `input` edits it."""

    request: Mapping[str, Any]
    input: Any
    message: Any
    note: str
    downstream_key: str


class Attempt(BaseModel):
    """One try at the call of an operation."""

    number: int
    started_at: AwareDatetime
    duration_ms: float
    category: str | None
    status_code: int | None
    error: str | None
    next_delay_seconds: float | None
    delay_reasons: list[str]


class DeadLetterNote(BaseModel):
    """Why an operation did not succeed, and the dead letter that can be replayed."""

    id: str | None
    category: str
    reason: str
    detail: str


class EventNote(BaseModel):
    """A follow-up message of an operation."""

    event_id: str
    type: str
    state: str


class StepNote(BaseModel):
    """A remembered step of a handler."""

    name: str
    status: str
    attempts: int
    result: Any


class Operation(BaseModel):
    """The status document of an operation; fields that a later version adds are left out."""

    operation_id: str
    key: str
    dependency: str
    correlation_id: str | None
    source: str
    status: str
    attempt_count: int
    attempts: list[Attempt]
    next_attempt_at: AwareDatetime | None
    deadline_at: AwareDatetime | None
    result: Any
    dead_letter: DeadLetterNote | None
    events: list[EventNote]
    created_at: AwareDatetime
    updated_at: AwareDatetime
    handler: str | None = None
    request: dict[str, Any] | None = None
    input: Any = None
    steps: list[StepNote] | None = None
    trace_id: str | None = None
    trace_url: str | None = None

    @property
    def is_finished(self) -> bool:
        """Whether it has ended."""
        return self.status in FINISHED


class AcceptedOperation(BaseModel):
    """An operation that was accepted, now or before."""

    operation_id: str
    key: str
    status: str
    status_url: str


class Mistake(BaseModel):
    """One mistake in what was sent; `pointer` is a JSON pointer."""

    pointer: str
    detail: str


class ProblemDocument(BaseModel):
    """Why a request was refused (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[Mistake] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a submission.

    Attributes:
        operation_id: Derived from the key.
        key: The one that was given, or generated.
        status: Of the operation at that moment.
        is_replayed: Whether the same operation was submitted before, so that nothing was started.
        operation: Its last status document, when it had ended by then.
    """

    operation_id: str
    key: str
    status: str
    is_replayed: bool
    operation: Operation | None


class ApiError(Exception):
    """A request that did not succeed; the base of the two below."""


class RefusedError(ApiError):
    """The API answered with a problem.

    Attributes:
        status: Of the answer.
        problem: The problem document; None when the answer has another form, such as a proxy's page.
    """

    def __init__(self, answer: httpx.Response) -> None:
        self.status = answer.status_code
        self.problem: ProblemDocument | None = None
        try:
            self.problem = ProblemDocument.model_validate_json(answer.content)
        except ValidationError:
            super().__init__(f"{self.status} {answer.reason_phrase}")
        else:
            listed = "; ".join(f"{each.pointer}: {each.detail}" for each in self.problem.errors)
            super().__init__(": ".join(filter(None, (f"{self.status} {self.problem.detail}", listed))))


class UnreachableError(ApiError):
    """There was no answer, however often it was asked: what was sent may have arrived."""


class OperationFailed(Exception):  # noqa: N818 - said where it is raised: `except OperationFailed`
    """An operation that did not succeed.

        except OperationFailed as failed:
            log.warning("%s: %s, dead letter %s", failed.reason, failed.detail, failed.dead_letter_id)

    Attributes:
        operation_id: Of the operation; "" when it was never started.
        status: `dead_lettered` or `cancelled`; `refused` when it was never started.
        category: Kind of the failure, such as `malformed`; None of a cancelled one.
        reason: Of the dead letter, such as `RetriesExhausted`; `ValidationFailed` when it was refused.
        dead_letter_id: What to replay; None when there is none.
        detail: What went wrong, for a person.
        document: The last status document; empty when it was never started.
    """

    def __init__(self, document: Mapping[str, Any], problems: Iterable[Mapping[str, str]] = ()) -> None:
        letter = document.get("dead_letter") or {}
        listed = "; ".join(f"{each['pointer']}: {each['detail']}" for each in problems)
        self.document = dict(document)
        self.operation_id = str(document.get("operation_id", ""))
        self.status = str(document.get("status", "refused"))
        self.category: str | None = "malformed" if listed else letter.get("category")
        self.reason: str | None = "ValidationFailed" if listed else letter.get("reason")
        self.dead_letter_id: str | None = letter.get("id")
        self.detail = listed or str(letter.get("detail") or "")
        words = (self.operation_id, self.status, self.reason, self.detail)
        super().__init__(", ".join(filter(None, words)))
