"""The status document of an operation, and its part that fits into a custom status.

The Azure Storage backend refuses a custom status above 16 KB of UTF-16. Texts are cut first, with a mark; the
latest 20 attempts, which the API promises, are never left out. What never changes is in the orchestration's
input, and what changes is in the custom status: together they are the status document.
"""

import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from durable_retry.base.answers import Answer, Instant, Unreadable, is_empty, left_out
from durable_retry.base.json_forms import from_rfc3339, is_none
from durable_retry.base.names import (
    FINISHED,
    Category,
    DeadLetterReason,
    EventState,
    OperationState,
    Priority,
)
from durable_retry.base.text import CUT_MARK, cut_text
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.history import History, PastAction, PastAttempt, PastWait


class StepState(StrEnum):
    """The state of a step.

    Two are shown and never stored. `unknown`: it began, and no execution of it runs now. `waiting`: it runs
    again when its operation does.
    """

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    WAITING = "waiting"


class StepNote(Answer):
    """A remembered step of a handler."""

    name: str
    status: StepState
    attempts: int = Field(description="Of this step, the present one included.")
    result: Any = Field(description="What it returned; null until it has succeeded.")
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)


class HeartbeatNote(Answer):
    """The latest heartbeat of a handler."""

    at: Instant
    attempt: int = Field(description="The attempt that reported it, or began with it.")
    progress: Any = Field(description="What it reported; the next attempt gets it.")


class OperationContent(Answer):
    """What an operation is to do: `request`, or `handler` and `input`."""

    request: dict[str, Any] | None = left_out("As it was submitted; credentials in headers are masked.")
    handler: str | None = left_out("Left out where a request is sent.")
    input: Any = left_out("What the handler gets.")

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
    result: Any = Field(
        description="Of a call `status_code`, `headers`, `json` or `body`; of a handler `value`."
    )
    dead_letter: DeadLetterNote | None
    events: tuple[EventNote, ...]
    created_at: Instant
    updated_at: Instant
    may_have_acted: bool = Field(
        default=False,
        exclude_if=operator.not_,
        description="Whether an attempt, of this run or an earlier one, ended without a clear refusal: "
        "the dependency may have acted. Left out where none did, and after success.",
    )
    waits: tuple[PastWait, ...] = Field(default=(), exclude_if=is_empty)
    actions: tuple[PastAction, ...] = Field(
        default=(), exclude_if=is_empty, description="The latest five. Left out while there are none."
    )
    handler: str | None = left_out("Left out where a request is sent.")
    start_at: Instant | None = left_out("When it begins. Left out where that was at once.")
    order_key: str | None = left_out(
        "Operations of one order key run one after the other. Left out without one."
    )
    order_on_failure: Literal["block", "skip"] | None = left_out(
        "What becomes of those behind it when it ends as a dead letter."
    )
    priority: Priority | None = left_out(
        "Who goes first where operations wait. Left out where it is `normal`."
    )
    limit_key: str | None = left_out("Whose share of the dependency's limits it uses. Left out without one.")
    debounce_key: str | None = left_out("A later operation with it replaces this one while it waits.")
    replaced_by: str | None = left_out(
        "The later operation with its debounce key, for which it was cancelled."
    )
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)
    submitted_by: str | None = left_out(
        "The person or the key that submitted or replayed it. Left out when not known."
    )
    replay_of: str | None = left_out("The dead letter that it replays. Left out in a first run.")
    trace_id: str | None = left_out("Of the caller's trace. Left out without one.")
    trace_url: str | None = left_out("Where it is looked at. Left out without the app setting `TRACE_URL`.")


class OperationReplay(Answer):
    """A replay of one of an operation's dead letters."""

    dead_letter_id: str = Field(description="The one that was replayed.")
    reason: DeadLetterReason
    requested_at: Instant
    by: str | None
    note: str | None
    action_id: str | None = Field(description="The bulk action that it was part of.")
    status: OperationState | None = Field(description="What has become of it; null when that is not known.")
    failed_again: str | None = Field(description="The dead letter that it ended as.")


class OperationDocument(ListedOperation, OperationContent):
    """Where an operation stands, and what it is to do: its request, or its handler and input.

    An operation shows them while the task hub has its history; its record, which lives longer, has neither.
    """

    steps: tuple[StepNote, ...] | None = left_out(
        "A handler's steps, as they began. Left out where a request is sent."
    )
    waits_for: str | None = left_out(
        "Whose circuit a step waits for. Left out while it is the operation's own, or none."
    )
    heartbeat: HeartbeatNote | None = left_out("Of a handler that reports progress. Left out before it does.")
    replays: tuple[OperationReplay, ...] = Field(
        default=(), exclude_if=is_empty, description="The latest first. Left out while there are none."
    )


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


MAX_BYTES: Final = 16_000
"""Counted in UTF-16; a little under 16 * 1024, to leave room for a wrapping of the platform's own."""

_TEXTS: Final = frozenset({"error", "detail", "type", "by"})
_CUTS: Final = ((400, 10, 20), (160, 6, 20), (60, 3, 10), (30, 1, 0), (len(CUT_MARK), 0, 0))
"""Tried in turn: characters of a text, reasons of a delay (and waits), events."""

_NAMES: Final = (
    "key",
    "dependency",
    "correlation_id",
    "source",
    "handler",
    "order_key",
    "priority",
    "limit_key",
    "debounce_key",
)
"""Members of the custom status for lists and summaries, which read no inputs."""
_SETTLED: Final = frozenset(_NAMES) - {"priority"}
"""Those that never change, and may be cut in the custom status."""
_NAME_CHARS: Final = 30
"""Characters to which a name is cut as a last resort: 255 emoji take 6 KB, since all but ASCII is escaped."""

STEPS_RUN: Final = "steps_run"
"""Member of a stored document that says which steps are the operation's; `steps` is shown in its place."""
WAITS_FOR: Final = "waits_for"
"""The dependency whose circuit an operation waits for, in its custom status; without it, its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationStatus:
    operation: OperationInput
    state: OperationState
    history: History
    updated_at: datetime  # when it last changed
    next_attempt_at: datetime | None = None  # when the present wait ends; None when it does not wait
    # The result of a success: `{"status_code", "headers", "json" | "body"}` or `{"value"}`.
    result: Any = None
    dead_letter: Mapping[str, Any] | None = None  # `{"id", "category", "reason"}`; None unless dead-lettered
    events: tuple[Mapping[str, Any], ...] = ()  # `{"event_id", "type", "state"}` of each follow-up message
    replaced_by: str | None = None  # the later operation of its debounce key; None unless one replaced it
    may_have_acted: bool = False  # whether an attempt ended without a clear refusal, in any run

    def to_json(self) -> dict[str, Any]:
        """Return what is stored: the document of `GET /api/operations/{operation_id}` without its content.

        That of a handler has `steps_run`, too.
        """
        operation, history, letter = self.operation, self.history, self.dead_letter
        document = ListedOperation.taken_from(
            operation,
            dependency=operation.submitted_to,
            status=self.state,
            attempt_count=history.attempt_count,
            attempts=history.attempts,
            next_attempt_at=self.next_attempt_at,
            result=self.result,
            dead_letter=None if letter is None else DeadLetterNote.read(letter),
            events=tuple(EventNote.read(event) for event in self.events),
            updated_at=self.updated_at,
            may_have_acted=self.may_have_acted and self.state is not OperationState.SUCCEEDED,
            waits=history.waits,
            actions=history.actions or (),
            replaced_by=self.replaced_by,
        ).to_json()
        return document if operation.handler is None else document | {STEPS_RUN: operation.remembered_run}

    def moving(self, **more: Any) -> dict[str, Any]:
        """Return the part that changes, see `moving_parts`, with more members of it."""
        return moving_parts(self.to_json() | more)


def fitted_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status document without its result, or its changing part, the same where it fits.

    Otherwise errors, details, reasons and event types are cut, then events are left out, and at last the
    names are cut. The document of the operation shows all of them.
    """
    whole = dict(status)
    if size_bytes(whole) <= MAX_BYTES:
        return whole
    shorter = (_cut_status(whole, *limits) for limits in _CUTS)
    fitting = (form for form in shorter if size_bytes(form) <= MAX_BYTES)
    return next(fitting, None) or _cut_names(_cut_status(whole, *_CUTS[-1]))


def size_bytes(document: Any) -> int:
    """Return the size as UTF-16 with other than ASCII escaped, which is how a platform may store it."""
    return 2 * len(json.dumps(document))


def _cut_status(status: dict[str, Any], chars: int, reasons: int, events: int) -> dict[str, Any]:
    cut = {name: _cut_texts(value, chars, reasons) for name, value in status.items()}
    if "events" in cut:
        cut["events"] = cut["events"][:events]
    for name in cut.keys() & {"actions", "waits"}:
        cut[name] = cut[name][-max(1, reasons) :]
    return cut


def _cut_names(status: dict[str, Any]) -> dict[str, Any]:
    names = {name: cut_text(status[name], _NAME_CHARS) for name in _NAMES if status.get(name) is not None}
    return status | names


def _cut_texts(value: Any, chars: int, reasons: int, name: str = "") -> Any:
    if isinstance(value, Mapping):
        return {key: _cut_texts(item, chars, reasons, key) for key, item in value.items()}
    if name == "delay_reasons":
        return [cut_text(reason, chars) for reason in value[:reasons]]
    if isinstance(value, list):
        return [_cut_texts(item, chars, reasons) for item in value]
    return cut_text(value, chars) if name in _TEXTS and isinstance(value, str) else value


def checked_document(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a status document that was stored; ValueError where it cannot be read as one."""
    OperationDocument.read(document)
    return document


_MOVING: Final = (
    *_NAMES,
    STEPS_RUN,
    WAITS_FOR,
    "status",
    "attempt_count",
    "attempts",
    "may_have_acted",
    "waits",
    "actions",
    "next_attempt_at",
    "dead_letter",
    "events",
    "updated_at",
)


def moving_parts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a status document that changes, small enough for a custom status."""
    return fitted_status({name: document[name] for name in _MOVING if name in document})


def running_document(
    operation: OperationInput, moving: Mapping[str, Any] | None, begun_at: datetime | None = None
) -> dict[str, Any]:
    """Return the status document of an unfinished operation.

    Args:
        moving: Its last custom status; None before it has one. An operation that begins at once sets none
            during its first attempt.
        begun_at: When its first turn was; None before that.
    """
    runs = begun_at is not None and operation.begins_at_once
    begun = OperationStatus(
        operation=operation,
        state=OperationState.RUNNING if runs else OperationState.PENDING,
        history=History(),
        updated_at=begun_at if begun_at is not None and runs else operation.created_at,
        may_have_acted=runs and operation.acted_before is True,
    )
    moved = {name: value for name, value in (moving or {}).items() if name not in _SETTLED}
    return begun.to_json() | moved


def is_finished(document: Mapping[str, Any]) -> bool:
    return OperationState(document["status"]) in FINISHED


def lasted_seconds(document: Mapping[str, Any]) -> float:
    """Return how long a finished operation took, from when it was to begin."""
    begins_at = document.get("start_at") or document["created_at"]
    # Somebody may have started it earlier, or cancelled it before.
    return max(0.0, (from_rfc3339(document["updated_at"]) - from_rfc3339(begins_at)).total_seconds())
