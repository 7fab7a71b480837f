"""The body of a saga, and references in it to results of earlier steps: `{"$result": "charge#/json/id"}`.

A reference stands in place of a value, anywhere in `request.json` or `input` of an operation. Before the `#`
is the name of the step, behind it a JSON pointer (RFC 6901) into the `result` of its status document.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator

from durable_retry.base.documents import Path, named_problems, walked
from durable_retry.base.validation import (
    InvalidInputError,
    Key,
    Problem,
    ResourceName,
    Strict,
    pointed_at,
    pointer_of,
    pointer_parts,
    pointer_problem,
    refuse_surplus_keys,
)
from durable_retry.rules.dead_letters.record import KeptDeadLetter
from durable_retry.rules.operations.operation import OperationInput

MEMBER: Final = "$result"

SAGA_SOURCE: Final = "saga"
"""Source of the operations of sagas."""

type Lookup = Callable[["Reference"], Any]
"""Returns the value of a reference, or raises `MissingResultError`."""


class MissingResultError(LookupError):
    """A result that a reference needs is not there, or is of no use; the message says which, for a person."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A part of a step's result."""

    step: str
    pointer: str  # JSON pointer into its result; "" is all of it

    @classmethod
    def parse(cls, text: Any) -> Self:
        """Read the text of a reference; ValueError says what one looks like."""
        step, mark, pointer = text.partition("#") if isinstance(text, str) else ("", "", "")
        if not (step and mark) or pointer_problem(pointer) is not None:
            raise ValueError(f'{text!r:.80} is no reference: write "step#/json/id"')
        return cls(step, pointer)


def references_in(value: Any, *place: str) -> Iterator[tuple[Path, Any]]:
    """Find references, valid or not, as path below a place and text."""
    for path, part in walked(value):
        if _is_reference(part):
            yield (*place, *path), part[MEMBER]


def filled(value: Any, lookup: Lookup, *place: str | int) -> Any:
    """Return a JSON value, not too deep for recursion, with its references replaced.

    Raises:
        MissingResultError: A result is not there; it begins with the JSON pointer below the place.
    """
    if _is_reference(value):
        try:
            return lookup(Reference.parse(value[MEMBER]))
        except MissingResultError as error:
            raise MissingResultError(f"{pointer_of(*place)}: {error}") from error
    if isinstance(value, Mapping):
        return {name: filled(item, lookup, *place, name) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item, lookup, *place, index) for index, item in enumerate(value)]
    return value


def _is_reference(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {MEMBER}


MAX_STEPS: Final = 50


class StepRequest(Strict):
    """One step: its operation, and the operation that undoes it.

    Attributes:
        name: Unique in its saga.
        operation: A body of `POST /api/operations`.
        compensation: Another one; None when nothing can or needs to undo the step.
    """

    name: ResourceName
    operation: dict[str, Any]
    compensation: dict[str, Any] | None = None

    _few_keys = model_validator(mode="before")(refuse_surplus_keys)


type References = Mapping[str, tuple[str, ...]]
"""The JSON pointers that are referred to, by the name of the step."""


def references_of(request: "SagaRequest") -> tuple[References, list[Problem]]:
    """Return what the operations of a saga refer to, and the problems of names and references.

    No two steps have one name, and a reference is to an earlier step.

    A compensation may also refer to its own step.
    """
    by_step: dict[str, set[str]] = {}

    def mistakes() -> Iterator[tuple[Path, str]]:
        names = [step.name for step in request.steps]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield ("steps", index, "name"), "is the name of an earlier step"
        for path, text, known in _references_in_steps(request):
            try:
                reference = Reference.parse(text)
            except ValueError as error:
                yield path, str(error)
                continue
            if reference.step in known:
                by_step.setdefault(reference.step, set()).add(reference.pointer)
            else:
                yield path, f"{reference.step!r:.80} is no step before it"

    problems = named_problems(mistakes())
    return {name: tuple(sorted(pointers)) for name, pointers in by_step.items()}, problems


def _references_in_steps(request: "SagaRequest") -> Iterator[tuple[Path, Any, list[str]]]:
    """Find the references in all operations, each with the names of the steps that it may name."""
    names = [step.name for step in request.steps]
    for index, step in enumerate(request.steps):
        for part, document, known in (
            ("operation", step.operation, names[:index]),
            ("compensation", step.compensation or {}, names[: index + 1]),
        ):
            for place, text in _references_in_operation(document):
                yield ("steps", index, part, *place), text, known


def _references_in_operation(document: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    request = document.get("request")
    body = request.get("json") if isinstance(request, Mapping) else None
    yield from references_in(body, "request", "json")
    yield from references_in(document.get("input"), "input")


def is_in_reference(document: Mapping[str, Any], pointer: str) -> bool:
    """Whether a place of an operation's document is a reference, or inside of one."""
    value: Any = document
    for part in pointer_parts(pointer):
        value = next(iter(pointed_at(value, pointer_of(part))), None)
        if _is_reference(value):
            return True
    return False


def refuse_unfilled(letter: KeptDeadLetter, operation: OperationInput) -> None:
    """Refuse to replay a saga's step with references: it did not run, because a result was not there.

    In an operation that has run such an object is a value, from an answer.

    Raises:
        InvalidInputError: With the place of each reference that is left.
    """
    if letter.attempts:
        return
    detail = "is a reference to a result that was not there: put the value in its place"
    references = _references_in_operation({"request": operation.request, "input": operation.input})
    if problems := named_problems((place, detail) for place, _ in references):
        raise InvalidInputError(problems)


class SagaRequest(Strict):
    """The body of `POST /api/sagas`; the header `Idempotency-Key` may give the key instead."""

    key: Key | None = None
    steps: Annotated[list[StepRequest], Field(min_length=1, max_length=MAX_STEPS)]
