"""What a person may edit before a replay: the request, the input or the message, never key or dependency."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from engine.credentials import missing_credentials
from engine.dead_letter import MAX_MESSAGE_CHARS, DeadLetterRecord
from engine.models import OperationRequest, parse_operation
from engine.problem import InvalidInputError, Problem, pointer_of
from engine.secret import MASK
from engine.validation import Strict

type NoteText = Annotated[str, Field(min_length=1, max_length=4_000)]

_BODIES: Final = frozenset({"json", "body"})
_MAX_CHANGES: Final = 100


class ReplayBody(Strict):
    """The body of `POST /api/dead-letters/{id}/replay`; all of it may be left out.

    Attributes:
        request: Keys of the request to put in place of what they were; the others stay.
        input: In place of a handler's input.
        message: In place of a message's text.
        note: Why, for whoever looks later.
    """

    request: dict[str, Any] | None = None
    input: Any = None
    message: Annotated[str, Field(max_length=MAX_MESSAGE_CHARS)] | None = None
    note: NoteText | None = None

    @property
    def edits(self) -> frozenset[str]:
        """The names of what is edited."""
        return frozenset(self.model_fields_set) - {"note"}


def edited_operation(record: DeadLetterRecord, edits: ReplayBody) -> OperationRequest:
    """Return the request for the operation that replays another, validated like a new one.

    Raises:
        InvalidInputError: With every mistake, what cannot be edited included.
    """
    operation = record.operation or {}
    is_handler = operation["handler"] is not None
    refused = edits.edits - ({"input"} if is_handler else {"request"})
    if refused:
        told = "cannot be edited: this dead letter has " + ("an input" if is_handler else "a request")
        raise InvalidInputError(Problem(f"/{name}", told) for name in sorted(refused))
    return _parsed(
        {"handler": operation["handler"], "input": operation["input"]}
        if is_handler
        else {"dependency": operation["dependency"], "request": operation["request"]},
        edits,
        record,
    )


def _parsed(document: dict[str, Any], edits: ReplayBody, record: DeadLetterRecord) -> OperationRequest:
    operation = record.operation or {}
    if "input" in edits.edits:
        document["input"] = edits.input
    if edits.request is not None:
        document["request"] = _overlaid(document["request"], edits.request)
    missing = list(missing_credentials(document.get("request")))
    if missing:
        raise InvalidInputError(missing)
    more = {"correlation_id": operation["correlation_id"], "on_success": list(operation["on_success"])}
    return parse_operation(document | more)


def _overlaid(request: Mapping[str, Any], edited: Mapping[str, Any]) -> dict[str, Any]:
    """Put edited keys over a request; a body of either form takes the place of a body of the other."""
    kept = {
        name: value for name, value in request.items() if name not in _BODIES or not _BODIES & edited.keys()
    }
    return {**kept, **edited}


def changes_between(before: Any, after: Any) -> tuple[dict[str, Any], ...]:
    """List what differs between two JSON documents, place by place, at most the first hundred.

    Returns:
        `{"pointer", "before", "after"}` of each; a side that has nothing there lacks the key.
    """
    found: list[dict[str, Any]] = []
    for change in _differences((), before, after):
        if len(found) == _MAX_CHANGES:
            break
        found.append(change)
    return tuple(found)


def _differences(path: tuple[str | int, ...], before: Any, after: Any) -> Iterator[dict[str, Any]]:
    # Documents are at most `engine.json_text.MAX_DEPTH` deep, and so is this recursion.
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted(before.keys() | after.keys()):
            place = (*path, str(name))
            if name not in after:
                yield {"pointer": pointer_of(*place), "before": before[name]}
            elif name not in before:
                yield {"pointer": pointer_of(*place), "after": after[name]}
            else:
                yield from _differences(place, before[name], after[name])
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        yield {"pointer": pointer_of(*path), "before": before, "after": after}


def is_masked(operation: Mapping[str, Any]) -> bool:
    """Tell whether an operation lost credentials when it was kept, so that it cannot start from there."""
    request = operation["request"]
    return request is not None and MASK in request.get("headers", {}).values()
