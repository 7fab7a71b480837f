"""What a search finds, and what it shows of an operation."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from pydantic import Field

from durable_retry.base.answers import UNREADABLE, Answer, Instant, Unreadable
from durable_retry.base.json_forms import from_rfc3339, is_none, optional_from_rfc3339
from durable_retry.base.names import PAUSE_EVENT, TURN_NAMES, WAITING, OperationState, Priority
from durable_retry.rules.retry.history import PastAction
from durable_retry_console.states import last_error

NAMES: Final = ("dependency", "handler", "source", "key", "correlation_id", *TURN_NAMES)
"""What operations and dead letters are asked by; each the whole of it."""


def names_of(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a document has for each of `NAMES`; a priority that is left out is `normal`."""
    priority = Priority(shown.get("priority") or Priority.NORMAL)
    return {name: shown.get(name) for name in NAMES} | {"priority": priority}


class FoundType(StrEnum):
    """What a search finds."""

    OPERATION = "operation"
    DEAD_LETTER = "dead_letter"
    EVENT = "event"
    BATCH = "batch"
    SAGA = "saga"
    BULK_ACTION = "bulk_action"
    ACTIVITY = "activity"
    """Something that a person did, or that happened: its id is that of its target, its status the kind."""


class FoundItem(Answer):
    """Something that was found: what every type has, null where it has none."""

    type: FoundType
    id: str
    name: str | None = None
    status: str
    key: str | None = None
    dependency: str | None = None
    handler: str | None = None
    source: str | None = None
    correlation_id: str | None = None
    order_key: str | None = None
    priority: Priority | None = None
    limit_key: str | None = None
    debounce_key: str | None = None
    operation_id: str | None = None
    error: str | None = None
    why: str | None = Field(
        default=None, description="Why an operation waits, with the error behind it; else null."
    )
    attempt_count: int | None = None
    next_attempt_at: Instant | None = None
    dead_letter_id: str | None = None
    created_at: Instant
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)


def found_operation(document: Mapping[str, Any]) -> FoundItem:
    letter = document["dead_letter"]
    # Why it did not go through, in one line; None while nothing failed, or once it did.
    error = None if document["status"] == OperationState.SUCCEEDED else last_error(document) or None
    return FoundItem(
        type=FoundType.OPERATION,
        id=document["operation_id"],
        status=document["status"],
        **names_of(document),
        operation_id=document["operation_id"],
        error=error if letter is None else f"{letter.get('reason')}: {letter.get('detail')}",
        why=why_waiting(document),
        attempt_count=document["attempt_count"],
        next_attempt_at=optional_from_rfc3339(document["next_attempt_at"]),
        dead_letter_id=(letter or {}).get("id"),
        created_at=from_rfc3339(document["created_at"]),
        unreadable=document.get(UNREADABLE),
    )


def why_waiting(document: Mapping[str, Any]) -> str | None:
    """Return why an operation waits now, by its document as it is shown; None while it does not."""
    status = OperationState(document["status"])
    if status is OperationState.PAUSED:
        pauses = [action for action in document.get("actions", ()) if action["action"] == PAUSE_EVENT]
        if not pauses:
            return None
        pause = PastAction.from_json(pauses[-1])
        by = f" by {pause.by}" if pause.by else ""
        return f"paused{by}: {pause.reason}" if pause.reason else f"paused{by}"
    waits = document.get("waits") if status in WAITING else None
    return waits[-1]["delay_reasons"][0] if waits else None
