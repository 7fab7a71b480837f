"""Operations by their states, what they are called, and why they failed, as status documents have it."""

from collections.abc import Mapping
from typing import Any, Final

from durable_retry.base.names import TURN_NAMES, WAITING, OperationState, Priority

HELD_UP: Final = WAITING | {OperationState.PAUSED}
"""States in which nothing happens until a time, a signal or a person ends them."""


def turn_names_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what a status document has for each of `TURN_NAMES`, "" for a key that it has not."""
    names = {name: document.get(name) or "" for name in TURN_NAMES}
    return names | {"priority": names["priority"] or Priority.NORMAL.value}


def last_error(document: Mapping[str, Any]) -> str:
    """Return why an operation last failed, by its latest failed attempt and its dead letter, or ""."""
    errors = [attempt["error"] for attempt in document.get("attempts", ()) if attempt.get("error")]
    dead_letter = document.get("dead_letter") or {}
    texts = [*errors[-1:], dead_letter.get("reason"), dead_letter.get("detail")]
    return "\n".join(text for text in texts if text)
