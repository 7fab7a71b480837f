"""Exit codes, and the errors that lead to them.

CommandError
  UsageError          the command is wrong
  ApiError            the API answered with a problem
  UnreachableError    the API does not answer, or accepts no operations for now
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from retryctl.layout import printable

OK: Final = 0
FAILED: Final = 1
"""The API refused the command, or what was waited for did not end well."""
USAGE: Final = 2
"""The command is wrong; argparse uses the same code."""
UNREACHABLE: Final = 3
"""The API does not answer, or accepts no operations for now."""
INTERRUPTED: Final = 130


class CommandError(Exception):
    """A command failed; the message is for a person."""

    exit_code: ClassVar[int] = FAILED


class UsageError(CommandError):
    """The command is wrong; the message says what is expected."""

    exit_code = USAGE


class ApiError(CommandError):
    """The API answered with a problem.

    Attributes:
        problem: The problem document; made up here when the answer has none.
    """

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.problem = problem
        super().__init__(self.text)

    @property
    def text(self) -> str:
        """The problem in one line, and each invalid field with its pointer in a line of its own."""
        status, title, detail = (self.problem.get(name, "") for name in ("status", "title", "detail"))
        lines = [f"{status} {title}: {detail}".rstrip(": ")]
        mistakes = self.problem.get("errors", ())
        lines.extend(f"  {each['pointer'] or '(document)'}: {each['detail']}" for each in mistakes)
        return "\n".join(map(printable, lines))


class UnreachableError(CommandError):
    """The API does not answer, or answers 503."""

    exit_code = UNREACHABLE
