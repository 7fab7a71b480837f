"""`${NAME}` in a settings file: replaced by app settings, with a note of where."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.problem import Problem, pointer_of

_REFERENCE: Final = re.compile(r"\$\{([^${}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:\-]*")

type Path = tuple[str | int, ...]


@dataclass(slots=True)
class Expansion:
    """Replaces references all through a document, and remembers what it met.

    Attributes:
        settings: The app settings.
        touched: Pointers of the strings that a setting went into.
        problems: Settings that are missing, references that are broken.
    """

    settings: Mapping[str, str]
    touched: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def expanded(self, value: Any, path: Path = ()) -> Any:
        """Give a copy of `value` with every reference replaced; a broken one stays as it stands."""
        if isinstance(value, dict):
            return {name: self.expanded(item, (*path, name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self.expanded(item, (*path, index)) for index, item in enumerate(value)]
        if isinstance(value, str) and "${" in value:
            return self._expanded_text(value, pointer_of(*path))
        return value

    def _expanded_text(self, text: str, pointer: str) -> str:
        self.touched.add(pointer)
        if "${" in _REFERENCE.sub("", text):
            self.problems.append(Problem(pointer, "holds ${ without its }"))
            return text
        return _REFERENCE.sub(lambda match: self._value_of(match, pointer), text)

    def _value_of(self, match: re.Match[str], pointer: str) -> str:
        name = match[1]
        if not _NAME.fullmatch(name):
            self.problems.append(Problem(pointer, f'"${{{name}}}" does not name an app setting'))
        elif name not in self.settings:
            self.problems.append(Problem(pointer, f"the app setting {name} is missing"))
        return self.settings.get(name, match[0])
