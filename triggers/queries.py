"""Reading the query of a list: filters, limit and cursor, every mistake at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from engine.instants import from_rfc3339
from engine.problem import InvalidInputError, Problem, pointer_of

MAX_LIMIT: Final = 200
DEFAULT_LIMIT: Final = 50


@dataclass(slots=True)
class Query:
    """The parameters of one request, read one by one; `check` raises for all mistakes together."""

    parameters: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list)
    known: set[str] = field(default_factory=set)

    def text(self, name: str) -> str | None:
        """Return a parameter as it is; None when it is missing or empty."""
        self.known.add(name)
        return self.parameters.get(name) or None

    def one_of(self, name: str, choices: frozenset[str]) -> str | None:
        """Return a parameter that must be one of a few words."""
        value = self.text(name)
        if value is not None and value not in choices:
            self._wrong(name, f"must be one of {', '.join(sorted(choices))}")
        return value

    def instant(self, name: str) -> datetime | None:
        """Return a parameter that must be an RFC 3339 instant."""
        return self._read(name, from_rfc3339, "must be an RFC 3339 instant such as 2026-11-21T09:30:00Z")

    def whole(self, name: str, least: int, most: int) -> int | None:
        """Return a parameter that must be a whole number in a range."""
        told = f"must be a number from {least} to {most}"
        value = self._read(name, int, told)
        if value is not None and not least <= value <= most:
            self._wrong(name, told)
        return value

    def limit(self) -> int:
        """Return how many items are wanted."""
        value = self.whole("limit", 1, MAX_LIMIT)
        return DEFAULT_LIMIT if value is None else value

    def check(self) -> None:
        """Hold the query to what was read.

        Raises:
            InvalidInputError: With every mistake, unknown parameters included.
        """
        for name in (
            self.parameters.keys() - self.known - {"code", "clientId"}
        ):  # the host's own: function keys
            self._wrong(name, "is not a known parameter")
        if self.problems:
            raise InvalidInputError(self.problems)

    def _read[T](self, name: str, read: Callable[[str], T], told: str) -> T | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            return read(value)
        except ValueError:
            self._wrong(name, told)
            return None

    def _wrong(self, name: str, detail: str) -> None:
        self.problems.append(Problem(pointer_of(name), detail))
