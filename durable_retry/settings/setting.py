"""An app setting: name, unit, default, range, meaning, and parsing.

`settings.catalogue` lists all settings; docs/settings.md is generated from it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from durable_retry.engine.base.validation import Problem


class SettingsError(ValueError):
    """Invalid app settings; `problems` has one entry per setting, its name as pointer."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{problem.pointer}: {problem.detail}" for problem in problems))

    @property
    def lines(self) -> str:
        """The message with one setting a line."""
        return "\n".join(f"{problem.pointer}: {problem.detail}" for problem in self.problems)


@dataclass(frozen=True, slots=True)
class Text:
    """A setting that is text; an empty one counts as not set.

    Attributes:
        name: Of the environment variable.
        meaning: For a person, one sentence.
        default: "" for none.
        choices: Allowed words, case-insensitive; empty allows any text.
        secret: Whether its value must never be shown.
    """

    name: str
    meaning: str
    default: str = ""
    choices: tuple[str, ...] = ()
    secret: bool = False

    @property
    def reference(self) -> str:
        """The form that a binding uses; the host substitutes the value, so it is not in the metadata."""
        return f"%{self.name}%"

    def get(self, environ: Mapping[str, str]) -> str:
        """Return the value, or the default."""
        return environ.get(self.name) or self.default

    def choice(self, environ: Mapping[str, str], problems: list[Problem]) -> str:
        """Return the chosen word as written in `choices`; append a problem for an invalid one."""
        value = self.get(environ)
        for word in self.choices:
            if word.lower() == value.lower():
                return word
        if value:
            problems.append(Problem(self.name, f"must be one of {', '.join(self.choices)}, not {value!r}"))
        return self.default


@dataclass(frozen=True, slots=True)
class Number:
    """A setting that is a number.

    Attributes:
        name: Of the environment variable.
        meaning: For a person, one sentence.
        default: Value when it is not set.
        unit: Of value and limits; "" for a count.
        least: Minimum.
        most: Maximum; None for none.
    """

    name: str
    meaning: str
    default: float
    unit: str = ""
    least: float = 0
    most: float | None = None

    def read(self, environ: Mapping[str, str], problems: list[Problem]) -> float:
        """Return the value; for an invalid one append a problem and return the default."""
        text = environ.get(self.name, "")
        if not text:
            return self.default
        value = _number(text)
        if self._allows(value):
            return value
        problems.append(Problem(self.name, f"must be {self.range_text()}, not {text!r}"))
        return self.default

    def _allows(self, value: float) -> bool:
        return math.isfinite(value) and self.least <= value and (self.most is None or value <= self.most)

    def range_text(self) -> str:
        """Return the allowed range as text."""
        most = "" if self.most is None else f" and at most {self.most:g}"
        return f"a number of at least {self.least:g}{most}"


class WholeNumber(Number):
    """A number without a fraction."""

    __slots__ = ()

    def read(self, environ: Mapping[str, str], problems: list[Problem]) -> int:
        """Return the value; for an invalid one append a problem and return the default."""
        return int(super().read(environ, problems))

    def _allows(self, value: float) -> bool:
        return super()._allows(value) and value == int(value)

    def range_text(self) -> str:
        """Return the allowed range as text."""
        return super().range_text().replace("a number", "a whole number")


type Setting = Text | Number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
