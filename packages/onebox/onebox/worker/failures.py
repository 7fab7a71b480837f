"""How the error of a user's function is caught with its type, although the runtime returns it as text.

The runtime's native entry swallows the exception and hands it to its logger together with a stack trace of
its own frames. A filter on that logger takes the exception out of the record and drops the record: the type
is known exactly, and the trace is not printed twice.
"""

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType

_RUNTIME_LOGGER = "azure.functions"
_RUNTIME_MESSAGES = {"Native invocation failed", "Native sync invocation failed"}
_MACHINERY = ("azure_functions_runtime.", "azure.durable_functions.", "onebox.", "concurrent.futures.")


@dataclass(frozen=True)
class Failure:
    """What went wrong in a function.

    Attributes:
        error_type: Bare class name, as the Azure worker reports it.
        message: The error's own text.
        stack_trace: The frames of the app's code, then the error; as the app's author wants to read it.
    """

    error_type: str
    message: str
    stack_trace: str


class FunctionFailedError(Exception):
    """A function of the app raised, or its result could not be used."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.error_type}: {failure.message}")
        self.failure = failure


@dataclass(frozen=True)
class Caught:
    """An exception that the runtime swallowed, and the frames that it came through."""

    error: BaseException
    frames: TracebackType | None


_caught: ContextVar[list[Caught] | None] = ContextVar("caught", default=None)


class _TakeException(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg not in _RUNTIME_MESSAGES:
            return True
        box = _caught.get()
        error = record.exc_info[1] if record.exc_info else None
        if box is not None and error is not None:
            box.append(Caught(error, error.__traceback__))
            # The runtime formats it next, for a text that nobody reads; with frames that costs a millisecond.
            error.__traceback__ = None
        return False


def watch_runtime_logger() -> None:
    """Begin to take exceptions from the runtime's logger, whatever level others set above it."""
    logger = logging.getLogger(_RUNTIME_LOGGER)
    logger.setLevel(logging.WARNING)
    if not any(isinstance(each, _TakeException) for each in logger.filters):
        logger.addFilter(_TakeException())


@contextmanager
def caught_exceptions() -> Iterator[list[Caught]]:
    """Collect what the runtime logs within this context (and task)."""
    box: list[Caught] = []
    token = _caught.set(box)
    try:
        yield box
    finally:
        _caught.reset(token)
        for each in box:
            each.error.__traceback__ = each.frames


def failure_of(error: BaseException) -> Failure:
    """Describe an exception of the app's code."""
    trace = "".join(traceback.format_exception(type(error), error, _users_frames(error.__traceback__)))
    return Failure(type(error).__name__, str(error), trace.rstrip())


def _users_frames(frame: TracebackType | None) -> TracebackType | None:
    """Skip the leading frames of the machinery; when nothing else is left, keep them all."""
    first = frame
    while frame is not None:
        # By module, not by file: the SDK's wrappers claim to lie in the file of the function that they wrap.
        if not str(frame.tb_frame.f_globals.get("__name__")).startswith(_MACHINERY):
            return frame
        frame = frame.tb_next
    return first
