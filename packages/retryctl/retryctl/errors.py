"""Exit codes, and the errors that lead to them.

CommandError
  UsageError          the command is wrong
  ApiError            the API answered with a problem
  UnreachableError    the API does not answer, or accepts no operations for now
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

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
    """The API answered with a problem, which the message has with a line for each invalid field.

    Attributes:
        status: Of the answer.
    """

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.status = problem.get("status")
        lines = [f"{self.status} {problem.get('title', '')}: {problem.get('detail', '')}".rstrip(": ")]
        mistakes = problem.get("errors", ())
        lines.extend(f"  {each['pointer'] or '(document)'}: {each['detail']}" for each in mistakes)
        super().__init__("\n".join(lines))


class UnreachableError(CommandError):
    """The API does not answer, or answers 503."""

    exit_code = UNREACHABLE
