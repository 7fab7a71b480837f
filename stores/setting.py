"""An app setting: its name, unit, default, range and meaning, and how its text is read.

`stores.setting_catalogue` holds every one; docs/settings.md is made of it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from engine.problem import Problem


@dataclass(frozen=True, slots=True)
class Text:
    """A setting that is text; an empty one counts as not set.

    Attributes:
        name: As the environment has it.
        meaning: For a person, one sentence.
        default: What holds when it is not set; "" when that is nothing.
        choices: The words that it may be, in any case; empty when any text will do.
        secret: Whether its value may be shown to nobody.
    """

    name: str
    meaning: str
    default: str = ""
    choices: tuple[str, ...] = ()
    secret: bool = False

    @property
    def reference(self) -> str:
        """How a binding refers to it: the host puts the value in, out of sight of the metadata."""
        return f"%{self.name}%"

    def get(self, environ: Mapping[str, str]) -> str:
        """Return the value as it stands, or the default."""
        return environ.get(self.name) or self.default

    def choice(self, environ: Mapping[str, str], problems: list[Problem]) -> str:
        """Return the word that was chosen, written as in `choices`; a wrong one is noted in `problems`."""
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
        name: As the environment has it.
        meaning: For a person, one sentence.
        default: What holds when it is not set.
        unit: Of the value and its limits; "" for a count.
        least: The smallest value.
        most: The largest value; None when there is none.
    """

    name: str
    meaning: str
    default: float
    unit: str = ""
    least: float = 0
    most: float | None = None

    def read(self, environ: Mapping[str, str], problems: list[Problem]) -> float:
        """Return the value, or the default beside a problem when it cannot be used."""
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
        """Tell what values it may have."""
        most = "" if self.most is None else f" and at most {self.most:g}"
        return f"a number of at least {self.least:g}{most}"


class WholeNumber(Number):
    """A number without a fraction."""

    __slots__ = ()

    def read(self, environ: Mapping[str, str], problems: list[Problem]) -> int:
        """Return the value, or the default beside a problem when it cannot be used."""
        return int(super().read(environ, problems))

    def _allows(self, value: float) -> bool:
        return super()._allows(value) and value == int(value)

    def range_text(self) -> str:
        """Tell what values it may have."""
        return super().range_text().replace("a number", "a whole number")


type Setting = Text | Number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
