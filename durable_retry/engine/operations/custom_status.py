"""The part of a status document that fits into an orchestration's custom status.

The Azure Storage backend refuses a custom status above 16 KB of UTF-16. Texts are cut first, with a mark; the
attempts that the contract promises are never left out. What never changes is in the orchestration's input,
and what changes is in the custom status: together they are the status document.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from durable_retry.engine.base.enums import FINISHED, OperationState
from durable_retry.engine.base.text import CUT_MARK, cut_text
from durable_retry.engine.operations.operation import OperationInput, OperationStatus
from durable_retry.engine.retry.history import History

MAX_BYTES: Final = 16_000
"""Of UTF-16; a little under 16 * 1024, to leave room for a wrapping of the platform's own."""

_TEXTS: Final = frozenset({"error", "detail", "type"})
_CUTS: Final = ((400, 10, 20), (160, 6, 20), (60, 3, 10), (30, 1, 0), (len(CUT_MARK), 0, 0))
"""Tried in turn: characters of a text, reasons of a delay (and waits), events."""


def fitted_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status document, or its changing part, cut to fit.

    Args:
        status: As `OperationStatus.to_json` returns it, without `result`; holds at most the last 20 attempts.

    Returns:
        The same when it fits. Otherwise errors, details, reasons and event types are cut, and in the end the
        events are left out: the document of a finished operation shows all of them.
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
    shown = {name: _cut(value, chars, reasons) for name, value in status.items()}
    if "events" in shown:
        shown["events"] = shown["events"][:events]
    if "waits" in shown:
        shown["waits"] = shown["waits"][-max(1, reasons) :]
    return shown


def _cut(value: Any, chars: int, reasons: int, name: str = "") -> Any:
    if isinstance(value, Mapping):
        return {key: _cut(item, chars, reasons, key) for key, item in value.items()}
    if name == "delay_reasons":
        return [cut_text(reason, chars) for reason in value[:reasons]]
    if isinstance(value, list):
        return [_cut(item, chars, reasons) for item in value]
    return cut_text(value, chars) if name in _TEXTS and isinstance(value, str) else value


_MOVING: Final = (
    "key",  # These two never change, but lists and summaries do not read inputs.
    "dependency",
    "status",
    "attempt_count",
    "attempts",
    "waits",
    "next_attempt_at",
    "dead_letter",
    "events",
    "updated_at",
)


def moving_parts(status: OperationStatus) -> dict[str, Any]:
    """Return the part that changes while an operation runs, small enough for a custom status."""
    document = status.to_json()
    return fitted_status({name: document[name] for name in _MOVING if name in document})


def running_document(operation: OperationInput, moving: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the status document of an unfinished operation.

    Args:
        operation: Its input.
        moving: What `moving_parts` returned; None before the orchestration's first turn.
    """
    pending = OperationStatus(
        operation=operation,
        state=OperationState.PENDING,
        history=History(),
        updated_at=operation.created_at,
    )
    return pending.to_json() | dict(moving or {})


def is_finished(document: Mapping[str, Any]) -> bool:
    """Return whether a status document is the last one of its operation."""
    return OperationState(document["status"]) in FINISHED
