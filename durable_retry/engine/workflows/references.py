"""The body of a saga, and references in it to results of earlier steps: `{"$result": "charge#/json/id"}`.

A reference stands in place of a value, anywhere in `request.json` or `input` of an operation. Before the `#`
is the name of the step, behind it a JSON pointer (RFC 6901) into the `result` of its status document.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator

from durable_retry.engine.base.validation import (
    InvalidInputError,
    Key,
    Problem,
    ResourceName,
    Strict,
    pointer_of,
    pointer_problem,
    refuse,
)
from durable_retry.engine.operations.operation import OperationInput

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


def references_in(value: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """Find references, valid or not, as JSON pointer below `pointer` and text.

    No recursion: what callers sent may nest deeply.
    """
    pending: list[tuple[str, Any]] = [(pointer, value)]
    while pending:
        place, part = pending.pop()
        if _is_reference(part):
            yield place, part[MEMBER]
        elif isinstance(part, Mapping):
            pending.extend((place + pointer_of(str(name)), item) for name, item in part.items())
        elif isinstance(part, list):
            pending.extend((place + pointer_of(index), item) for index, item in enumerate(part))


def filled(value: Any, lookup: Lookup) -> Any:
    """Return a JSON value, not too deep for recursion, with its references replaced.

    Raises:
        MissingResultError: A result is not there.
    """
    if _is_reference(value):
        return lookup(Reference.parse(value[MEMBER]))
    if isinstance(value, Mapping):
        return {name: filled(item, lookup) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item, lookup) for item in value]
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


type References = Mapping[str, tuple[str, ...]]
"""The JSON pointers that are referred to, by the name of the step."""


def references_of(request: "SagaRequest") -> tuple[References, list[Problem]]:
    """Return what the operations of a saga refer to, and each reference that is none or to no earlier step.

    A compensation may also refer to its own step.
    """
    names = [step.name for step in request.steps]
    wanted: dict[str, set[str]] = {}
    problems = []
    for index, step in enumerate(request.steps):
        for part, document, known in (
            ("operation", step.operation, names[:index]),
            ("compensation", step.compensation or {}, names[: index + 1]),
        ):
            for place, text in references_in_operation(document):
                try:
                    reference = Reference.parse(text)
                except ValueError as error:
                    problems.append(Problem(pointer_of("steps", index, part) + place, str(error)))
                    continue
                if reference.step in known:
                    wanted.setdefault(reference.step, set()).add(reference.pointer)
                else:
                    detail = f"{reference.step!r} is no step before it"
                    problems.append(Problem(pointer_of("steps", index, part) + place, detail))
    return {name: tuple(sorted(pointers)) for name, pointers in wanted.items()}, problems


def references_in_operation(document: Mapping[str, Any]) -> list[tuple[str, Any]]:
    request = document.get("request")
    body = request.get("json") if isinstance(request, Mapping) else None
    return [*references_in(body, "/request/json"), *references_in(document.get("input"), "/input")]


def refuse_unfilled(operation: OperationInput) -> None:
    """Refuse to send a saga's step with references: it did not run before, because a result was not there.

    In what has run such an object is a value: of an answer, or of a saga that was accepted before there were
    references.

    Raises:
        InvalidInputError: With the place of each reference that is left.
    """
    left = references_in_operation({"request": operation.request, "input": operation.input})
    if left:
        detail = "is a reference to a result that was not there: put the value in its place"
        raise InvalidInputError(Problem(place, detail) for place, _ in left)


class SagaRequest(Strict):
    """The body of `POST /api/sagas`; the header `Idempotency-Key` may give the key instead."""

    key: Key | None = None
    steps: Annotated[list[StepRequest], Field(min_length=1, max_length=MAX_STEPS)]

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        if len({step.name for step in self.steps}) < len(self.steps):
            raise refuse("two steps have one name")
        return self
