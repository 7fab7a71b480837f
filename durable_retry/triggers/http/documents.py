"""Bodies of answers about operations, and the shapes that other answers share.

Answers may gain fields: clients ignore those that they do not recognise.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from durable_retry.engine.base.names import Category, DeadLetterReason, OperationState
from durable_retry.engine.operations.steps import StepState
from durable_retry.engine.outbox import EventState
from durable_retry.engine.retry.history import WaitKind

type UtcInstant = Annotated[
    str, WithJsonSchema({"type": "string", "format": "date-time", "description": "RFC 3339, UTC, with Z."})
]


class Mistake(BaseModel):
    """One mistake in what was sent."""

    pointer: Annotated[str, Field(description="JSON pointer (RFC 6901); the empty one is the whole.")]
    detail: str


class ProblemDocument(BaseModel):
    """Why a request was refused (RFC 9457)."""

    type: str
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str
    errors: list[Mistake] = Field(default_factory=list)


class Attempt(BaseModel):
    """One try at the call."""

    number: Annotated[int, Field(ge=1)]
    started_at: UtcInstant
    duration_ms: float
    category: Annotated[Category | None, Field(description="null for success")]
    status_code: int | None
    error: str | None
    next_delay_seconds: float | None
    delay_reasons: list[str]


class HoldUp(BaseModel):
    """Waits for the circuit or the retry budget before one attempt."""

    before_attempt: int
    kind: WaitKind
    began_at: UtcInstant
    until: UtcInstant
    times: int
    delay_reasons: list[str]


class DeadLetterNote(BaseModel):
    """The dead letter of an operation that did not succeed."""

    id: str | None
    category: Category
    reason: DeadLetterReason
    detail: str


class EventNote(BaseModel):
    """A follow-up message of an operation."""

    event_id: str
    type: str
    state: EventState


class ActionNote(BaseModel):
    """What somebody did to an operation."""

    action: Literal["cancel", "retry_now"]
    at: UtcInstant
    by: Annotated[str | None, Field(description="Name of the person or of the key; null when not known.")]


class ListedOperation(BaseModel):
    """Where an operation stands; `attempts` holds the latest 20."""

    operation_id: str
    key: str
    dependency: str
    correlation_id: str | None
    source: str
    status: OperationState
    attempt_count: int
    attempts: list[Attempt]
    next_attempt_at: UtcInstant | None
    deadline_at: UtcInstant | None
    result: Annotated[
        Any, Field(description="Of a call `status_code`, `headers`, `json` or `body`; of a handler `value`.")
    ]
    dead_letter: DeadLetterNote | None
    events: list[EventNote]
    created_at: UtcInstant
    updated_at: UtcInstant
    waits: list[HoldUp] = Field(default_factory=list)
    actions: Annotated[
        list[ActionNote], Field(description="The latest five. Left out while there are none.")
    ] = Field(default_factory=list)
    handler: Annotated[str | None, Field(description="Left out where a request is sent.")] = None


class StepNote(BaseModel):
    """A remembered step of a handler."""

    name: str
    status: StepState
    attempts: Annotated[int, Field(description="Of this step, the present one included.")]
    result: Annotated[Any, Field(description="What it returned; null until it has succeeded.")]


class OperationReplay(BaseModel):
    """A replay of one of an operation's dead letters."""

    dead_letter_id: Annotated[str, Field(description="The one that was replayed.")]
    reason: DeadLetterReason
    requested_at: UtcInstant
    by: str | None
    note: str | None
    replay_id: Annotated[str | None, Field(description="The bulk replay that it was part of.")]
    status: Annotated[
        OperationState | None, Field(description="What has become of it; null when that is not known.")
    ]
    failed_again: Annotated[str | None, Field(description="The dead letter that it ended as.")]


class OperationDocument(ListedOperation):
    """Where an operation stands, and what it is to do: its request, or its handler and input.

    An operation shows them while the task hub has its history; its record, which lives longer, has neither.
    """

    request: Annotated[
        dict[str, Any] | None, Field(description="As it was submitted; credentials in headers are masked.")
    ] = None
    input: Annotated[Any, Field(description="What the handler gets.")] = None
    steps: Annotated[
        list[StepNote] | None,
        Field(description="A handler's steps, as they began. Left out where a request is sent."),
    ] = None
    submitted_by: Annotated[
        str | None,
        Field(description="The person or the key that submitted or replayed it. Left out when not known."),
    ] = None
    replay_of: Annotated[
        str | None, Field(description="The dead letter that it replays. Left out in a first run.")
    ] = None
    replays: Annotated[
        list[OperationReplay], Field(description="The latest first. Left out while there are none.")
    ] = Field(default_factory=list)
    trace_id: Annotated[str | None, Field(description="Of the caller's trace. Left out without one.")] = None
    trace_url: Annotated[
        str | None, Field(description="Where it is looked at. Left out without the app setting `TRACE_URL`.")
    ] = None


class OperationPage(BaseModel):
    """A page of operations, the newest first, without their requests and inputs."""

    items: list[ListedOperation]
    next_cursor: str | None


class AcceptedOperation(BaseModel):
    """An operation that was accepted, now or before."""

    operation_id: str
    key: str
    status: OperationState
    status_url: str


class SteeredOperation(BaseModel):
    """An operation that was cancelled, or whose wait was ended."""

    operation_id: str
    status: OperationState


class UnfinishedCounts(BaseModel):
    """Operations that have not ended, by status."""

    pending: int
    running: int
    waiting_retry: int
    waiting_circuit: int


class StatusCounts(UnfinishedCounts):
    """Operations by status."""

    succeeded: int
    dead_lettered: int
    cancelled: int


class OperationShare(BaseModel):
    """Some of the operations of a window."""

    operations: int
    attempts: int
    amplification: Annotated[float | None, Field(description="Attempts per operation that was tried.")]
    by_status: StatusCounts


class TimeBucket(BaseModel):
    """Operations that ended in one part of a window, and those accepted in it that have not ended."""

    begins_at: Annotated[UtcInstant, Field(alias="from")]
    by_status: StatusCounts


class NextAttempt(BaseModel):
    """An operation that waits."""

    operation_id: str
    key: str
    dependency: str
    status: OperationState
    attempt_count: int
    next_attempt_at: UtcInstant


class UnfinishedSummary(BaseModel):
    """Operations that have not ended, whenever accepted."""

    complete: Annotated[bool, Field(description="False when there were more than were looked at.")]
    by_status: UnfinishedCounts
    by_dependency: dict[str, UnfinishedCounts]
    next_attempts: Annotated[list[NextAttempt], Field(description="The next eight, soonest first.")]


class OperationSummary(OperationShare):
    """Operations that ended between `from` and `to`, and those accepted then that have not ended.

    `operations` counts those accepted then, `attempts` those made then.
    """

    counted_at: UtcInstant
    complete: Annotated[bool, Field(description="False when there were more than were looked at.")]
    begins_at: Annotated[UtcInstant, Field(alias="from")]
    ends_at: Annotated[UtcInstant, Field(alias="to")]
    by_dependency: Annotated[
        dict[str, OperationShare], Field(description="Without operations that wait for their first turn.")
    ]
    bucket_seconds: float
    buckets: list[TimeBucket]
    unfinished: UnfinishedSummary
