"""Concise logs on standard error: one line per event, with the invocation it belongs to."""

import logging
import os
import sys
from datetime import UTC, datetime
from typing import TextIO

from azure_functions_runtime import invocation_id_cv

from onebox.environment import NO_COLOR

_SHORT_ID = 8
_OFFSET = len("+00:00")
_GREY, _RED, _YELLOW, _GREEN, _PLAIN = "\x1b[90m", "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[0m"

# Loggers that write a line per request or turn at info level.
_CHATTY = ("azure", "durabletask", "httpx", "uvicorn", "asyncio")


class LineFormatter(logging.Formatter):
    """`[instant] invocation message`, with colour for a terminal."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; below it those of an error, from `exc_info` or `extra={"frames": ...}`, indented.

        So nothing that a caller sent, such as a path, can begin a line or steer the terminal.
        """
        instant = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-_OFFSET]
        invocation = getattr(record, "invocation_id", None) or invocation_id_cv.get() or ""
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname}: "
        text = f"{mark}{printable(record.getMessage())}"
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        frames = [*(record.exc_text or "").splitlines(), *getattr(record, "frames", "").splitlines()]
        text = "\n  ".join([text, *map(printable, frames)])
        head = f"[{instant}Z]{' ' + invocation[:_SHORT_ID] if invocation else ''}"
        return self._coloured(head, text, record) if self._colour else f"{head} {text}"

    @staticmethod
    def _coloured(head: str, text: str, record: logging.LogRecord) -> str:
        colour = (
            _RED if record.levelno >= logging.ERROR else _YELLOW if record.levelno >= logging.WARNING else ""
        )
        if not colour and getattr(record, "outcome", None) == "Succeeded":
            colour = _GREEN
        return f"{_GREY}{head}{_PLAIN} {colour}{text}{_PLAIN if colour else ''}"


def printable(text: str) -> str:
    """Return a text with everything escaped that is no letter, digit, sign or space, such as a line break."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def wants_colour(stream: TextIO) -> bool:
    """Return whether to colour: on a terminal, unless NO_COLOR (no-color.org) is set."""
    return stream.isatty() and not NO_COLOR.get(os.environ)


def set_up_logs(*, verbose: bool, stream: TextIO | None = None) -> None:
    """Send everything to one stream.

    Args:
        verbose: Show debug lines of onebox, such as each orchestrator turn.
        stream: None means standard error.
    """
    target = stream or sys.stderr
    handler = logging.StreamHandler(target)
    handler.setFormatter(LineFormatter(colour=wants_colour(target)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("onebox").setLevel(logging.DEBUG if verbose else logging.INFO)
