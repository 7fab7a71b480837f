"""What people and callers see of operations."""

import operator
from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from durable_retry.engine.base.answers import Answer, Instant, is_empty, left_out
from durable_retry.engine.base.json_forms import is_none
from durable_retry.engine.base.names import (
    FINISHED,
    Category,
    DeadLetterReason,
    EventState,
    OperationState,
    OrderOnFailure,
    Priority,
)
from durable_retry.engine.base.unreadable import Unreadable
from durable_retry.engine.operations.steps import HeartbeatNote, StepNote
from durable_retry.engine.retry.history import PastAction, PastAttempt, PastWait


class OperationContent(Answer):
    """What an operation is to do: `request`, or `handler` and `input`."""

    request: Annotated[
        dict[str, Any] | None, left_out("As it was submitted; credentials in headers are masked.")
    ] = None
    handler: Annotated[str | None, left_out("Left out where a request is sent.")] = None
    input: Annotated[Any, left_out("What the handler gets.")] = None

    # Without an annotation of what it returns, which would be the JSON schema.
    @model_serializer(mode="wrap")
    def _with_input(self, write: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def] # noqa: ANN202
        document: dict[str, Any] = write(self)
        # The input of a handler may be null, which says more than to leave it out.
        is_known = self.handler is not None and "input" in self.model_fields_set
        return {"input": None, **document} if is_known else document


class DeadLetterNote(Answer):
    """The dead letter of an operation that did not succeed."""

    id: str | None
    category: Category
    reason: DeadLetterReason
    detail: str


class EventNote(Answer):
    """A follow-up message of an operation."""

    event_id: str
    type: str
    state: EventState


class ListedOperation(Answer):
    """Where an operation stands; `attempts` holds the latest 20."""

    operation_id: str
    key: str
    dependency: str
    correlation_id: str | None
    source: str
    status: OperationState
    attempt_count: int
    attempts: tuple[PastAttempt, ...]
    next_attempt_at: Instant | None
    deadline_at: Instant | None
    result: Annotated[
        Any, Field(description="Of a call `status_code`, `headers`, `json` or `body`; of a handler `value`.")
    ]
    dead_letter: DeadLetterNote | None
    events: tuple[EventNote, ...]
    created_at: Instant
    updated_at: Instant
    may_have_acted: Annotated[
        bool,
        Field(
            exclude_if=operator.not_,
            description="Whether an attempt, of this run or an earlier one, ended without a clear refusal: "
            "the dependency may have acted. Left out where none did, and after success.",
        ),
    ] = False
    waits: Annotated[tuple[PastWait, ...], Field(exclude_if=is_empty)] = ()
    actions: Annotated[
        tuple[PastAction, ...],
        Field(exclude_if=is_empty, description="The latest five. Left out while there are none."),
    ] = ()
    handler: Annotated[str | None, left_out("Left out where a request is sent.")] = None
    start_at: Annotated[
        Instant | None,
        Field(exclude_if=is_none, description="When it begins. Left out where that was at once."),
    ] = None
    order_key: Annotated[
        str | None, left_out("Operations of one order key run one after the other. Left out without one.")
    ] = None
    order_on_failure: Annotated[
        OrderOnFailure | None,
        Field(
            exclude_if=is_none,
            description="What becomes of those behind it when it ends as a dead letter.",
        ),
    ] = None
    priority: Annotated[
        Priority | None, left_out("Who goes first where operations wait. Left out where it is `normal`.")
    ] = None
    debounce_key: Annotated[
        str | None,
        left_out("A later operation with it replaces this one while it waits."),
    ] = None
    replaced_by: Annotated[
        str | None,
        left_out("The later operation with its debounce key, for which it was cancelled."),
    ] = None
    unreadable: Annotated[Unreadable, Field(exclude_if=is_none)] = None
    submitted_by: Annotated[
        str | None, left_out("The person or the key that submitted or replayed it. Left out when not known.")
    ] = None
    replay_of: Annotated[
        str | None, left_out("The dead letter that it replays. Left out in a first run.")
    ] = None
    trace_id: Annotated[str | None, left_out("Of the caller's trace. Left out without one.")] = None
    trace_url: Annotated[
        str | None, left_out("Where it is looked at. Left out without the app setting `TRACE_URL`.")
    ] = None

    @property
    def is_finished(self) -> bool:
        """Whether it has ended."""
        return self.status in FINISHED


class OperationReplay(Answer):
    """A replay of one of an operation's dead letters."""

    dead_letter_id: Annotated[str, Field(description="The one that was replayed.")]
    reason: DeadLetterReason
    requested_at: Instant
    by: str | None
    note: str | None
    action_id: Annotated[str | None, Field(description="The bulk action that it was part of.")]
    status: Annotated[
        OperationState | None, Field(description="What has become of it; null when that is not known.")
    ]
    failed_again: Annotated[str | None, Field(description="The dead letter that it ended as.")]


class OperationDocument(ListedOperation, OperationContent):
    """Where an operation stands, and what it is to do: its request, or its handler and input.

    An operation shows them while the task hub has its history; its record, which lives longer, has neither.
    """

    steps: Annotated[
        tuple[StepNote, ...] | None,
        left_out("A handler's steps, as they began. Left out where a request is sent."),
    ] = None
    waits_for: Annotated[
        str | None,
        Field(
            exclude_if=is_none,
            description="Whose circuit a step waits for. Left out while it is the operation's own, or none.",
        ),
    ] = None
    heartbeat: Annotated[
        HeartbeatNote | None,
        Field(exclude_if=is_none, description="Of a handler that reports progress. Left out before it does."),
    ] = None
    replays: Annotated[
        tuple[OperationReplay, ...],
        Field(exclude_if=is_empty, description="The latest first. Left out while there are none."),
    ] = ()


class AcceptedOperation(Answer):
    """An operation that was accepted, now or before."""

    operation_id: str
    key: str
    status: OperationState
    status_url: str


class SteeredOperation(Answer):
    """An operation that was cancelled, or whose wait was ended."""

    operation_id: str
    status: OperationState
    dependency: str | None = None


class UnfinishedCounts(Answer):
    """Operations that have not ended, by status."""

    pending: int
    running: int
    waiting_retry: int
    waiting_throttle: int
    waiting_circuit: int
    scheduled: int
    paused: int
    waiting_order: int


class StatusCounts(UnfinishedCounts):
    """Operations by status."""

    succeeded: int
    dead_lettered: int
    cancelled: int
