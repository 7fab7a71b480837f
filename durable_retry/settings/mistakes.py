"""Everything that keeps the app from starting, gathered and shown at once, with the file and line to change.

mistakes = Mistakes(root)
with mistakes.gathered():
    app_settings()
mistakes.refuse()       # raises StartError when there were any
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from durable_retry.base.text import counted
from durable_retry.base.validation import Problem
from durable_retry.rules.config.dependencies_file import ConfigError, key_path
from durable_retry.settings.group import SettingsError

HOST_JSON: Final = "host.json"

_LOCAL_SETTINGS: Final = "local.settings.json"


class StartError(SettingsError):
    """The app cannot start; the message has one line for each mistake, with its place."""

    hides_traceback: Final = True
    """onebox shows such an error without a traceback: its message says where to look."""

    def __str__(self) -> str:
        count = counted(len(self.problems), "mistake")
        lines = (f"  {problem.pointer}: {problem.detail}" for problem in self.problems)
        return "\n".join((f"Durable Retry does not start, because of {count}:", *lines))


@dataclass(slots=True)
class Mistakes:
    """The mistakes of one start.

    Attributes:
        root: The app's folder.
        registered_at: File and line of the call of `register`; "" when there was none.
    """

    root: Path
    registered_at: str = ""
    problems: list[Problem] = field(default_factory=list)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Keep the mistakes that end the block."""
        try:
            yield
        except ConfigError as error:
            for problem, line in zip(error.problems, error.lines, strict=True):
                self.add(f"{error.file_name}:{line}: {key_path(problem.pointer)}", problem.detail)
        except SettingsError as error:
            for problem in error.problems:
                self.add(self.place_of(problem.pointer), problem.detail)

    def add(self, place: str, detail: str) -> None:
        """Keep a mistake, once: a group of settings is read by several parts of the start."""
        problem = Problem(self.shown(place), detail)
        if problem not in self.problems:
            self.problems.append(problem)

    def shown(self, place: str) -> str:
        """Return a place as seen from the app's folder."""
        for folder in (self.root, Path.cwd()):
            place = place.removeprefix(f"{folder}/")
        return place

    def refuse(self) -> None:
        """End the start if there were mistakes."""
        if self.problems:
            raise StartError(self.problems)

    def place_of(self, name: str) -> str:
        """Return where a setting, a key of host.json or a parameter of `register` is to be changed."""
        head, _, key = name.partition("/")
        if name == HOST_JSON:
            return HOST_JSON
        if head == HOST_JSON:
            line = _line_with(self.root / HOST_JSON, key.rpartition("/")[2])
            return f"{HOST_JSON}:{line or 1}: {key}"
        if head.startswith("register("):
            return f"{self.registered_at}: {name}" if self.registered_at else name
        line = _line_with(self.root / _LOCAL_SETTINGS, head)
        return f"{_LOCAL_SETTINGS}:{line}: {name}" if line else f"app setting {name}"


def _line_with(file: Path, name: str) -> int | None:
    """Return the line of a JSON file that has a member of a name; None when none has."""
    member = re.compile(rf'"{re.escape(name)}"\s*:')
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((number for number, line in enumerate(lines, 1) if member.search(line)), None)
