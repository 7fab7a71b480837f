"""Replaying a dead letter: what a person may edit before it, and what the edit changed.

A person may edit the request, the input or the message; never key or dependency.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from durable_retry.engine.base.json_input import json_problems, json_size
from durable_retry.engine.base.masking import Masking
from durable_retry.engine.base.text import MASK
from durable_retry.engine.base.unreadable import read_or
from durable_retry.engine.base.validation import InvalidInputError, Problem, Strict, pointer_of, with_example
from durable_retry.engine.config.dependency import Targets
from durable_retry.engine.dead_letters.patch import EDITABLE, Patch, patched
from durable_retry.engine.dead_letters.record import MAX_MESSAGE_CHARS, EditedValue, KeptDeadLetter
from durable_retry.engine.operations.naming import canonical_json, visible
from durable_retry.engine.operations.operation import (
    OperationInput,
    content_of,
    missing_credentials,
    without_credentials,
)
from durable_retry.engine.operations.request import OperationRequest, parse_operation
from durable_retry.engine.operations.submission import check_target

type NoteText = Annotated[str, Field(min_length=1, max_length=4_000)]

_BODIES: Final = frozenset({"json", "body"})
_MAX_CHANGES: Final = 100
# Room for the largest content before and after: more is only the same names again, in each pointer.
_MAX_CHANGES_BYTES: Final = 300_000


class ReplayOptions(Strict):
    """How one dead letter or many are replayed."""

    note: Annotated[NoteText | None, Field(description="Why, for whoever looks later.")] = None
    patch: Annotated[
        Patch | None,
        Field(
            description="A change (JSON patch, RFC 6902) of the request, the input or the message as they "
            "are shown. A dead letter that it does not fit is not replayed."
        ),
    ] = None
    downstream_key: Annotated[
        Literal["same", "new"] | None,
        Field(
            description="The key that the dependency deduplicates on: `same`, or `new` as for another "
            "request. Left out, it is new when the call or the input was edited; other headers alone keep it."
        ),
    ] = None

    from_step: Annotated[
        str | None,
        Field(
            max_length=200,
            description="Of a handler's dead letter: this remembered step and those that began after it are "
            "run again; the results of earlier ones are kept, also with an edited input.",
        ),
    ] = None

    @property
    def options(self) -> dict[str, Any]:
        """The options that were given, as JSON."""
        return self.model_dump(include=set(_OPTIONS), by_alias=True, exclude_unset=True, exclude_none=True)


_OPTIONS: Final = frozenset(ReplayOptions.model_fields)


class ReplayBody(ReplayOptions):
    """The body of `POST /api/dead-letters/{id}/replay`; all of it may be left out.

    Attributes:
        request: Keys that replace those of the request; the others stay.
        input: Replaces a handler's input.
        message: Replaces a message's text.
    """

    model_config = with_example(request={"json": {"amount": 6}}, note="The amount was wrong.")

    request: dict[str, Any] | None = None
    input: Any = None
    message: Annotated[str, Field(max_length=MAX_MESSAGE_CHARS)] | None = None

    @property
    def edits(self) -> frozenset[str]:
        """The names of the parts that are edited."""
        return frozenset(self.model_fields_set) - _OPTIONS


def _with_patch(edits: ReplayBody, record: KeptDeadLetter, masking: Masking, most_bytes: int) -> ReplayBody:
    """Return edits in which the parts that a patch changed stand.

    People see masks, so a patch meets masks too: it cannot copy or compare what is masked.
    """
    if edits.patch is None:
        return edits
    if edits.edits:
        raise InvalidInputError([Problem("/patch", "is not taken beside edited parts")])
    shown = _editable_content(record, masking)
    after = patched(shown, edits.patch, most_bytes=most_bytes)
    if wrong := sorted(after.keys() ^ shown.keys()):
        raise InvalidInputError(Problem(f"/{name}", "cannot be added or removed") for name in wrong)
    if "request" in after and not isinstance(after["request"], dict):
        raise InvalidInputError([Problem("/request", "must be an object")])
    if "message" in after and not isinstance(after["message"], str):
        after["message"] = json.dumps(after["message"], ensure_ascii=False)
    return edits.model_copy(update=after)


def _editable_content(record: KeptDeadLetter, masking: Masking) -> dict[str, Any]:
    """Return what a patch leads into, under its name; a message that is JSON is taken as such."""
    if record.operation is None:
        text = masking.shown({"message": record.message or ""})["message"]
        document = read_or(lambda: json.loads(text), lambda _: None)
        return {"message": document if isinstance(document, dict | list) else text}
    content = content_of(record.operation, masking)
    return {name: content[name] for name in content.keys() & EDITABLE}


def whole_edits(
    edits: ReplayBody, record: KeptDeadLetter, masking: Masking, *, most_bytes: int
) -> ReplayBody:
    """Return edits with the parts that a patch changed, and with what is kept in place of masks.

    Args:
        most_bytes: The largest content that a patch may make.

    Raises:
        InvalidInputError: The patch does not fit, or a mask stands for nothing that is known.
    """
    edits = _with_patch(edits, record, masking, most_bytes)
    written = {name: getattr(edits, name) for name in edits.edits}
    if problems := json_problems(written):  # before anything walks it by recursion
        raise InvalidInputError(problems)
    kept = {"message": record.message, **(without_credentials(record.operation) if record.operation else {})}
    unmasked = {
        name: masking.restored(name, value, kept[name])
        for name, value in written.items()
        if value is not None and kept.get(name) is not None
    }
    return edits.model_copy(update=unmasked)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A replay about to be started."""

    operation: OperationInput  # what will run
    changes: tuple[EditedValue, ...]


def replayed_operation(
    record: KeptDeadLetter, edits: ReplayBody, targets: Targets, now: datetime, *, new_suffix: str
) -> Prepared:
    """Give an operation its key, policy and time limits again, the time counted from now.

    `new_suffix` makes the key that the dependency gets a new one, where the edit needs that.

    Raises:
        UnknownTargetError: Its dependency or handler is not known.
        InvalidInputError: With every mistake, including fields that cannot be edited.
    """
    kept = OperationInput.from_json(record.operation or {})
    edited = edited_operation(record, edits)
    check_target(edited, targets)
    operation = replace(
        replace(kept, start_at=None, debounce=None, order_number=None, order_after=None).restarted(now),
        request=None if edited.request is None else edited.request.to_json(),
        input=edited.input,
        replay_of=record.id,
    )
    changes = changes_between(_shown_part(kept), _shown_part(operation))
    needs_key = needs_new_key(edits, _editable_part(kept), _editable_part(operation))
    if edits.from_step is None and (needs_key or operation.input != kept.input):
        # The results of its steps are those of another input, or must not be used again.
        operation = replace(operation, steps_run=None)
    if needs_key:
        operation = replace(operation, downstream_key=visible(f"{kept.key}.{new_suffix}"))
    return Prepared(operation, changes)


def _editable_part(operation: OperationInput) -> dict[str, Any]:
    parts = {"request": operation.request, "input": operation.input}
    return {name: part for name, part in parts.items() if part is not None}


def _shown_part(operation: OperationInput) -> dict[str, Any]:
    shown = without_credentials(operation.to_json())
    return {name: shown[name] for name in _editable_part(operation)}


def edited_operation(record: KeptDeadLetter, edits: ReplayBody) -> OperationRequest:
    """Return the request of the operation that replays another one, validated like a new one.

    Raises:
        InvalidInputError: With every mistake, including fields that cannot be edited.
    """
    operation = record.operation or {}
    is_handler = operation.get("handler") is not None
    refused = edits.edits - ({"input"} if is_handler else {"request"})
    if refused:
        detail = "cannot be edited: this dead letter has " + ("an input" if is_handler else "a request")
        raise InvalidInputError(Problem(f"/{name}", detail) for name in sorted(refused))
    return _parsed_request(
        {"handler": operation["handler"], "input": operation.get("input")}
        if is_handler
        else {"dependency": operation["dependency"], "request": operation["request"]},
        edits,
        record,
    )


def _parsed_request(document: dict[str, Any], edits: ReplayBody, record: KeptDeadLetter) -> OperationRequest:
    operation = record.operation or {}
    if "input" in edits.edits:
        document["input"] = edits.input
    if edits.request is not None:
        document["request"] = (
            _edited_request(document["request"], edits.request) if edits.patch is None else edits.request
        )
    # Credentials were masked when the dead letter was stored, so the person must supply them again.
    missing = list(missing_credentials(document.get("request")))
    if missing:
        raise InvalidInputError(missing)
    more = {"correlation_id": operation.get("correlation_id"), "on_success": list(operation["on_success"])}
    return parse_operation(document | more)


def _edited_request(request: Mapping[str, Any], edited: Mapping[str, Any]) -> dict[str, Any]:
    """Apply edited keys to a request; a body of either form replaces a body of the other."""
    kept = {
        name: value for name, value in request.items() if name not in _BODIES or not _BODIES & edited.keys()
    }
    return {**kept, **edited}


def needs_new_key(edits: ReplayBody, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the dependency must get a new key: it may refuse another request under the old one."""
    if edits.downstream_key is not None:
        return edits.downstream_key == "new"
    return _compared_content(before) != _compared_content(after)


def _compared_content(content: Mapping[str, Any]) -> str:
    """Return what dependencies compare under one key; credentials in headers may differ."""
    request = {name: value for name, value in (content.get("request") or {}).items() if name != "headers"}
    return canonical_json([request, content.get("input")])


def changes_between(before: Any, after: Any) -> tuple[EditedValue, ...]:
    """List the differences between two JSON documents, the first hundred in 300,000 bytes at most.

    A side on which the value is missing lacks its key.
    """
    changes: list[EditedValue] = []
    left_bytes = _MAX_CHANGES_BYTES
    for change in islice(_differences_between((), before, after), _MAX_CHANGES):
        left_bytes -= json_size(change)
        if left_bytes < 0:
            break
        changes.append(change)
    return tuple(changes)


def _differences_between(path: tuple[str | int, ...], before: Any, after: Any) -> Iterator[EditedValue]:
    # Accepted documents are not deep (`engine.base.validation.MAX_DEPTH`), and so is this recursion.
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted(before.keys() | after.keys()):
            place = (*path, str(name))
            if name not in after:
                yield {"pointer": pointer_of(*place), "before": before[name]}
            elif name not in before:
                yield {"pointer": pointer_of(*place), "after": after[name]}
            else:
                yield from _differences_between(place, before[name], after[name])
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        yield {"pointer": pointer_of(*path), "before": before, "after": after}


def is_masked(operation: Mapping[str, Any]) -> bool:
    """Return whether credentials were masked when an operation was stored, so that it cannot start again."""
    request = operation.get("request")
    return request is not None and MASK in request.get("headers", {}).values()
