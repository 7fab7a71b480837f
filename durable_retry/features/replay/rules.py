"""Replaying a dead letter: what a person may edit before it, and what the edit changed.

A person may edit the request, the input or the message; never key or dependency.

A JSON patch (RFC 6902) is one change that is made to many dead letters, each with a content of its own.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Final, Literal, Self

from jsonpatch import (
    JsonPatch,
    JsonPatchException,
    JsonPatchPathNotFound,
    JsonPatchTestFailed,
    JsonPointerException,
)
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from durable_retry.base.answers import read_or
from durable_retry.base.documents import json_problems, json_size
from durable_retry.base.masking import Masking
from durable_retry.base.text import MASK
from durable_retry.base.validation import (
    InvalidInputError,
    Problem,
    Strict,
    checked,
    pointer_of,
    pointer_problem,
    refuse,
    with_example,
)
from durable_retry.rules.config.dependency import Dependency, Targets
from durable_retry.rules.dead_letters.record import (
    MAX_MESSAGE_CHARS,
    EditedValue,
    KeptDeadLetter,
    NoteText,
    Status,
    WrongStatusError,
)
from durable_retry.rules.operations.keys import canonical_json, visible
from durable_retry.rules.operations.operation import (
    CREDENTIAL_HEADERS,
    OperationInput,
    content_of,
    without_credentials,
)
from durable_retry.rules.operations.request import (
    OperationRequest,
    members_at,
    members_by_feature,
    parse_operation,
)
from durable_retry.rules.operations.submission import check_target

EDITABLE: Final = frozenset({"request", "input", "message"})
"""What a patch may begin with: the part of a dead letter that a person may edit."""

_MAX_STEPS: Final = 50
_MAX_POINTER_CHARS: Final = 1_000


def _place_problem(pointer: str) -> str | None:
    if pointer_problem(pointer) is None and pointer.partition("/")[2].partition("/")[0] not in EDITABLE:
        return f"must begin with /{', /'.join(sorted(EDITABLE))}"
    return pointer_problem(pointer)


type _Place = Annotated[str, Field(max_length=_MAX_POINTER_CHARS), checked(_place_problem)]


class PatchStep(Strict):
    """One step of a JSON patch.

    Attributes:
        op: What is done at the path; `test` refuses the dead letters that have another value there.
        path: JSON pointer into the dead letter as it is shown, such as `/request/json/amount`; that of a
            message which is JSON leads into it.
        value: Of `add`, `replace` and `test`.
        source: Of `move` and `copy`, written `from`: where the value comes from.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    path: _Place
    value: Any = None
    source: _Place | None = Field(default=None, alias="from")

    @model_validator(mode="after")
    def _has_its_members(self) -> Self:
        takes_value, takes_source = self.op in {"add", "replace", "test"}, self.op in {"move", "copy"}
        if takes_value is not ("value" in self.model_fields_set):
            raise refuse(f"{self.op} {'needs a' if takes_value else 'takes no'} value")
        if takes_source is not (self.source is not None):
            raise refuse(f"{self.op} {'needs a' if takes_source else 'takes no'} from")
        return self


def _checked_values(steps: list[PatchStep]) -> list[PatchStep]:
    for problem in json_problems([step.value for step in steps]):
        raise refuse(f"{problem.pointer} {problem.detail}")
    return steps


type Patch = Annotated[
    list[PatchStep], Field(min_length=1, max_length=_MAX_STEPS), AfterValidator(_checked_values)
]


def patched(content: Any, steps: Iterable[PatchStep], *, most_bytes: int) -> Any:
    """Return a document as a patch changes it.

    Args:
        most_bytes: The largest document, as JSON; one that is larger already must not grow.

    Raises:
        InvalidInputError: The patch does not fit the document, or makes it too large or too deep; the pointer
            is the place in the document.
    """
    if problems := json_problems(content):  # a message may be of any depth, and copying it goes by recursion
        raise _misfit("", f"the document {problems[0].detail}")
    document = deepcopy(content)
    most_bytes = max(most_bytes, json_size(content))
    for step in steps:
        _change(document, step)
        if step.op not in {"test", "remove"}:
            _refuse_growth(document, step, most_bytes)
    return document


def _refuse_growth(document: Any, step: PatchStep, most_bytes: int) -> None:
    # After each step: a copy of the document into itself doubles it, so fifty of them would never end.
    if problems := json_problems(document):
        raise _misfit(step.path, f"after this step the document {problems[0].detail}")
    if json_size(document) > most_bytes:
        raise _misfit(step.path, f"after this step the document is larger than {most_bytes} bytes")


def _change(document: Any, step: PatchStep) -> None:
    operation = step.model_dump(by_alias=True, exclude_unset=True)
    try:
        JsonPatch([operation]).apply(document, in_place=True)
    except JsonPatchTestFailed:
        raise _misfit(step.path, f"is not {json.dumps(step.value, sort_keys=True):.100}") from None
    except JsonPatchPathNotFound:
        raise _misfit(step.source or step.path, "is not there") from None
    except (JsonPatchException, JsonPointerException):
        # `from None`, and no words of the error: they show parts of the document.
        raise _misfit(step.path, "is no place in the document") from None


def _misfit(pointer: str, detail: str) -> InvalidInputError:
    return InvalidInputError([Problem(pointer, detail)])


_BODIES: Final = frozenset({"json", "body"})
_MAX_CHANGES: Final = 100
# Room for the largest content before and after: more is only the same names again, in each pointer.
_MAX_CHANGES_BYTES: Final = 300_000


class ReplayOptions(Strict):
    """How one dead letter or many are replayed."""

    note: NoteText | None = Field(default=None, description="Why, for whoever looks later.")
    patch: Patch | None = Field(
        default=None,
        description="A change (JSON patch, RFC 6902) of the request, the input or the message as they "
        "are shown. A dead letter that it does not fit is not replayed.",
    )
    downstream_key: Literal["same", "new"] | None = Field(
        default=None,
        description="The key that the dependency deduplicates on: `same`, or `new` as for another "
        "request. Left out, it is new when the call or the input was edited; other headers alone keep it.",
    )

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
    dependency = check_target(edited, targets)
    operation = replace(
        replace(kept, start_at=None, parts=_parts_of(record, kept, dependency)).restarted(now),
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


def _parts_of(
    record: KeptDeadLetter, kept: OperationInput, dependency: Dependency
) -> Mapping[str, Mapping[str, Any]] | None:
    parts = parts_of_replay(kept.parts) if kept.parts else None
    if not (dependency.of_features and record.is_unclear):
        return parts
    unclear = parts_of_unclear(dependency, record.created_at, record.latest_attempt)
    return {**(parts or {}), **unclear} or None


def parts_of_replay(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]] | None:
    """Return what a replay keeps of the parts of an operation; None for nothing."""
    kept = {
        name: own
        for name, part in parts.items()
        if (members := members_by_feature().get(name)) and (own := members.part_of_replay(part)) is not None
    }
    return kept or None


def parts_of_unclear(
    dependency: Dependency, since: datetime, attempt: int | None
) -> dict[str, Mapping[str, Any]]:
    """Return what a replay keeps where nobody knows whether the operation happened; see `part_of_unclear`."""
    asked = (
        (name, each.part_of_unclear(dependency, since, attempt)) for name, each in members_at(dependency)
    )
    return {name: part for name, part in asked if part is not None}


def members_of_replay(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    known = members_by_feature()
    own = (known[name].of_part(part) for name, part in parts.items() if name in known)
    return {member: value for members in own for member, value in members.items()}


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
    detail = "cannot be edited: this dead letter has " + ("an input" if is_handler else "a request")
    problems = [Problem(f"/{name}", detail) for name in sorted(refused)]
    parts = ("handler", "input") if is_handler else ("dependency", "request")
    document = {name: operation.get(name) for name in parts}
    if is_handler and "input" in edits.edits:
        document["input"] = edits.input
    if not is_handler and edits.request is not None:
        kept = operation["request"] if edits.patch is None else {}
        # A body of either form replaces a body of the other.
        replaced = edits.request.keys() | (_BODIES if _BODIES & edits.request.keys() else set())
        changed = {name: kept[name] for name in kept.keys() - replaced} | edits.request
        document["request"] = _typed_as_json(operation["request"], changed)
    # Credentials were masked when the dead letter was stored, so the person must supply them again.
    problems += missing_credentials(document.get("request"))
    document["correlation_id"] = operation.get("correlation_id")
    if kept_parts := operation.get("parts"):
        document |= members_of_replay(kept_parts)
    try:
        request = parse_operation(document)
    except InvalidInputError as error:
        raise InvalidInputError([*problems, *error.problems]) from None
    if problems:
        raise InvalidInputError(problems)
    return request


def _typed_as_json(before: Mapping[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return an edited request without the content type of its text, where `json` took the text's place."""
    headers = after.get("headers")
    if "body" not in before or "json" not in after or not isinstance(headers, dict):
        return after
    stale = {
        name
        for name, value in headers.items()
        if name.lower() == "content-type" and value == before["headers"].get("content-type")
    }
    return after | {"headers": {name: value for name, value in headers.items() if name not in stale}}


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
    # Accepted documents are not deep (`MAX_DEPTH`), and so is this recursion.
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


def not_replayed(record: KeptDeadLetter) -> KeptDeadLetter:
    """Return the dead letter without its latest replay, which could not be started.

    Unchanged when that replay did start and has failed again meanwhile.

    Raises:
        WrongStatusError: It is not replayed.
    """
    if record.status is not Status.REPLAYED:
        raise WrongStatusError(record.status)
    # The replay did start: it has failed again. Only the answer to its start was lost.
    if record.replays[-1].dead_letter_id is not None:
        return record
    return replace(record, status=Status.OPEN, replays=record.replays[:-1])


def missing_credentials(request: Mapping[str, Any] | None) -> Iterator[Problem]:
    """List the headers of a stored request whose masked values cannot be sent again."""
    headers = None if request is None else request.get("headers")
    for name, value in headers.items() if isinstance(headers, dict) else ():
        if name.lower() in CREDENTIAL_HEADERS and value == MASK:
            detail = "is a credential and was not kept: give it in an edited request, or leave it out there"
            yield Problem(pointer_of("request", "headers", name), detail)
