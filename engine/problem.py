"""One mistake in what a caller sent or wrote, with the place it stands at."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake and its place.

    Attributes:
        pointer: JSON pointer (RFC 6901) into the document, e.g. `/retry/max_attempts`; "" is the whole.
        detail: What is wrong and what would be right, as a sentence for a person.
    """

    pointer: str
    detail: str

    def to_json(self) -> dict[str, str]:
        """Give the form of a problem document's `errors` item."""
        return {"pointer": self.pointer, "detail": self.detail}


class InvalidInputError(ValueError):
    """What was sent does not validate; `problems` lists every mistake."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{p.pointer or '/'}: {p.detail}" for p in self.problems))


def pointer_of(*parts: str | int) -> str:
    """Join the parts of a path into a JSON pointer, escaping `~` and `/` (RFC 6901 section 3)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
