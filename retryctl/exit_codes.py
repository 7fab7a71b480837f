"""What the command line exits with, and the errors that say so.

CommandError
  UsageError          the command is wrong                        here
  ApiError            the API answered with a problem             api.py
  UnreachableError    it did not answer, or can take nothing now  api.py
"""

from typing import ClassVar, Final

OK: Final = 0
BADLY: Final = 1
"""An operation ended badly, or the API refused what was asked."""
USAGE: Final = 2
"""The command itself is wrong; also argparse's own."""
UNREACHABLE: Final = 3
"""The API does not answer, or cannot take anything over at this moment."""
INTERRUPTED: Final = 130


class CommandError(Exception):
    """A command cannot be carried out; the message is for a person."""

    exit_code: ClassVar[int] = BADLY


class UsageError(CommandError):
    """The command is wrong; the message says what would be right."""

    exit_code = USAGE
