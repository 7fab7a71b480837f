"""Exit codes, and the errors that lead to them.

CommandError
  UsageError          the command is wrong
  ApiError            the API answered with a problem
  UnreachableError    the API does not answer, or accepts no operations for now
"""

from typing import ClassVar, Final

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
    """The API answered with a problem, which the message has with a line for each invalid field."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}".rstrip(": "))
        self.status = status


class UnreachableError(CommandError):
    """The API does not answer, or answers 503."""

    exit_code = UNREACHABLE
