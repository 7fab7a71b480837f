"""The lists that a search goes through: each is of one type of things."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from durable_retry_console.finding.found import NAMES, FoundItem, FoundType
from durable_retry_console.finding.question import Question

ROWS_READ: Final = 200
INSTANCES_READ: Final = 50
"""Rows, and instances, of one page of a list that has no index of names."""

type Items = tuple[list[FoundItem], str | None]
"""Items and the cursor of the next page."""

type ReadPage = Callable[[int, str | None], Awaitable[Items]]
"""Takes the most items and a cursor."""


@dataclass(frozen=True, slots=True)
class FoundList:
    """A list of things."""

    kind: FoundType
    states: type[StrEnum] | None  # their states; None where a question by state goes through it, too
    names: frozenset[str]  # what of `NAMES` it can be asked by
    read: ReadPage

    def can_answer(self, question: Question) -> bool:
        """Whether a question may find something in it."""
        asked = {name for name in NAMES if getattr(question, name) is not None}
        has_state = question.status is None or self.states is None or question.status in set(self.states)
        return question.kind in (None, self.kind) and asked <= self.names and has_state
