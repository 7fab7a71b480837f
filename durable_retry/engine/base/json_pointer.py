"""JSON pointers (RFC 6901) into documents that strangers sent."""

from typing import Any

from jsonpointer import EndOfList, JsonPointer, JsonPointerException


def pointed_at(document: Any, pointer: str) -> list[Any]:
    """Return what a JSON pointer points at, as a list of one; an empty list when there is nothing there."""
    try:
        value = JsonPointer(pointer).resolve(document)
    except JsonPointerException:
        return []
    # `-` names the place behind a list's last item, where nothing is.
    return [] if isinstance(value, EndOfList) else [value]


def pointer_problem(pointer: str) -> str | None:
    """Return what is wrong with a JSON pointer; None when nothing is."""
    try:
        JsonPointer(pointer)
    except JsonPointerException:
        return "is not a JSON pointer: it begins with /, and ~ stands only in ~0 or ~1 (RFC 6901)"
    return None
