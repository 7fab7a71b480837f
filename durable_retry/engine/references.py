"""References of a saga's step to results of earlier steps: `{"$result": "charge#/json/id"}`.

A reference stands in place of a value, anywhere in `request.json` or `input` of an operation. Before the `#`
is the name of the step, behind it a JSON pointer (RFC 6901) into the `result` of its status document.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from durable_retry.engine.base.validation import pointer_of, pointer_problem

MEMBER: Final = "$result"

type Lookup = Callable[["Reference"], Any]
"""Returns the value of a reference, or raises `MissingResultError`."""


class MissingResultError(LookupError):
    """A result that a reference needs is not there; the message says which, for a person."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A part of a step's result.

    Attributes:
        step: Name of the step.
        pointer: JSON pointer into its result; "" is all of it.
    """

    step: str
    pointer: str

    @classmethod
    def parse(cls, text: Any) -> Self:
        """Read the text of a reference.

        Raises:
            ValueError: It is none; the message says what one looks like.
        """
        step, mark, pointer = text.partition("#") if isinstance(text, str) else ("", "", "")
        if not (step and mark) or pointer_problem(pointer) is not None:
            raise ValueError(f'{text!r:.80} is no reference: write "step#/json/id"')
        return cls(step, pointer)


def references_in(value: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """Find references, valid or not, without recursion: what callers sent may nest deeply.

    Args:
        value: JSON.
        pointer: Where it stands.

    Yields:
        The JSON pointer of each, and its text.
    """
    pending: list[tuple[str, Any]] = [(pointer, value)]
    while pending:
        place, found = pending.pop()
        if _is_reference(found):
            yield place, found[MEMBER]
        elif isinstance(found, Mapping):
            pending.extend((place + pointer_of(str(name)), item) for name, item in found.items())
        elif isinstance(found, list):
            pending.extend((place + pointer_of(index), item) for index, item in enumerate(found))


def filled(value: Any, lookup: Lookup) -> Any:
    """Return a value with its references replaced.

    Args:
        value: JSON, of the depth that `engine.base.validation` allows.
        lookup: Finds each value.

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
