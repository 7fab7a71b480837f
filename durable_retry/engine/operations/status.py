"""The status document of an operation, and its part that fits into a custom status.

The Azure Storage backend refuses a custom status above 16 KB of UTF-16. Texts are cut first, with a mark; the
latest 20 attempts, which the API promises, are never left out. What never changes is in the orchestration's
input, and what changes is in the custom status: together they are the status document.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from durable_retry.engine.base.instants import from_rfc3339
from durable_retry.engine.base.names import FINISHED, OperationState
from durable_retry.engine.base.text import CUT_MARK, cut_text
from durable_retry.engine.operations.document import (
    DeadLetterNote,
    EventNote,
    ListedOperation,
    OperationDocument,
)
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.retry.history import History

MAX_BYTES: Final = 16_000
"""Counted in UTF-16; a little under 16 * 1024, to leave room for a wrapping of the platform's own."""

_TEXTS: Final = frozenset({"error", "detail", "type", "by"})
_CUTS: Final = ((400, 10, 20), (160, 6, 20), (60, 3, 10), (30, 1, 0), (len(CUT_MARK), 0, 0))
"""Tried in turn: characters of a text, reasons of a delay (and waits), events."""

STEPS_RUN: Final = "steps_run"
"""Member of a stored document that says which steps are the operation's; `steps` is shown in its place."""
WAITS_FOR: Final = "waits_for"
"""The dependency whose circuit an operation waits for, in its custom status; without it, its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationStatus:
    """The status document of one operation."""

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
        document = ListedOperation(
            operation_id=operation.operation_id,
            key=operation.key,
            dependency=operation.dependency,
            correlation_id=operation.correlation_id,
            source=operation.source,
            status=self.state,
            attempt_count=history.attempt_count,
            attempts=history.attempts,
            next_attempt_at=self.next_attempt_at,
            deadline_at=operation.deadline_at,
            result=self.result,
            dead_letter=None if letter is None else DeadLetterNote.read(letter),
            events=tuple(EventNote.read(event) for event in self.events),
            created_at=operation.created_at,
            updated_at=self.updated_at,
            may_have_acted=self.may_have_acted and self.state is not OperationState.SUCCEEDED,
            waits=history.waits,
            actions=history.actions or (),
            handler=operation.handler,
            start_at=operation.start_at,
            order_key=operation.order_key,
            order_on_failure=operation.order_on_failure,
            priority=operation.priority,
            debounce_key=operation.debounce_key,
            replaced_by=self.replaced_by,
        ).to_json()
        return document if operation.handler is None else document | {STEPS_RUN: operation.remembered_run}

    def moving(self, **more: Any) -> dict[str, Any]:
        """Return the part that changes, see `moving_parts`, with more members of it."""
        return moving_parts(self.to_json() | more)


def fitted_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status document without its result, or its changing part, the same where it fits.

    Otherwise errors, details, reasons and event types are cut, and in the end the events are left out: the
    document of a finished operation shows all of them.
    """
    whole = dict(status)
    if size_bytes(whole) <= MAX_BYTES:
        return whole
    shorter = (_cut_status(whole, *limits) for limits in _CUTS)
    return next((form for form in shorter if size_bytes(form) <= MAX_BYTES), _cut_status(whole, *_CUTS[-1]))


def size_bytes(document: Any) -> int:
    """Return the size as UTF-16 with other than ASCII escaped, which is how a platform may store it."""
    return 2 * len(json.dumps(document))


def _cut_status(status: dict[str, Any], chars: int, reasons: int, events: int) -> dict[str, Any]:
    shown = {name: _cut_texts(value, chars, reasons) for name, value in status.items()}
    if "events" in shown:
        shown["events"] = shown["events"][:events]
    if "actions" in shown:
        shown["actions"] = shown["actions"][-max(1, reasons) :]
    if "waits" in shown:
        shown["waits"] = shown["waits"][-max(1, reasons) :]
    return shown


def _cut_texts(value: Any, chars: int, reasons: int, name: str = "") -> Any:
    if isinstance(value, Mapping):
        return {key: _cut_texts(item, chars, reasons, key) for key, item in value.items()}
    if name == "delay_reasons":
        return [cut_text(reason, chars) for reason in value[:reasons]]
    if isinstance(value, list):
        return [_cut_texts(item, chars, reasons) for item in value]
    return cut_text(value, chars) if name in _TEXTS and isinstance(value, str) else value


def checked_document(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a status document that was stored; ValueError where nobody can read it as one."""
    OperationDocument.read(document)
    return document


_MOVING: Final = (
    "key",  # These nine never change, but lists and summaries do not read inputs.
    "dependency",
    "correlation_id",
    "source",
    "handler",
    "order_key",
    "priority",
    "debounce_key",
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


def running_document(operation: OperationInput, moving: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the status document of an unfinished operation; `moving` is None before its first turn."""
    pending = OperationStatus(
        operation=operation, state=OperationState.PENDING, history=History(), updated_at=operation.created_at
    )
    return pending.to_json() | dict(moving or {})


def last_error(document: Mapping[str, Any]) -> str:
    """Return why an operation last failed, by its latest failed attempt and its dead letter, or ""."""
    errors = [attempt["error"] for attempt in document.get("attempts", ()) if attempt.get("error")]
    dead_letter = document.get("dead_letter") or {}
    texts = [*errors[-1:], dead_letter.get("reason"), dead_letter.get("detail")]
    return "\n".join(text for text in texts if text)


def is_finished(document: Mapping[str, Any]) -> bool:
    """Return whether a status document is the last one of its operation."""
    return OperationState(document["status"]) in FINISHED


def lasted_seconds(document: Mapping[str, Any]) -> float:
    """Return how long a finished operation took, from when it was to begin."""
    begins_at = document.get("start_at") or document["created_at"]
    # Somebody may have started it earlier, or cancelled it before.
    return max(0.0, (from_rfc3339(document["updated_at"]) - from_rfc3339(begins_at)).total_seconds())


UNFINISHED: Final = tuple(state for state in OperationState if state not in FINISHED)


def by_status(
    states: Counter[str], shown: tuple[OperationState, ...] = tuple(OperationState)
) -> dict[str, int]:
    """Return a count for each state, zeros included."""
    return {state.value: states[state] for state in shown}
