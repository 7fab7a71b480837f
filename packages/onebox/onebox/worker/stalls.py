"""Says where an app is when it takes long: at its import, which can be bounded, and on its event loop."""

import faulthandler
import logging
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Final

_LOG = logging.getLogger("onebox")
_FIRST_SECONDS: Final = 10.0
_FRAME: Final = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$')


@contextmanager
def watched_load(folder: Path, first_seconds: float = _FIRST_SECONDS) -> Iterator[None]:
    """Log which line the app executes while it is imported, after 10 s, 20 s, 40 s and so on.

    Args:
        folder: The app's.
        first_seconds: When to log first.
    """
    loaded = threading.Event()
    what = "the app is still being imported after"
    watching = threading.Thread(
        target=log_until,
        args=(loaded, what, threading.current_thread(), folder, first_seconds),
        name="watch the import",
        daemon=True,
    )
    watching.start()
    try:
        yield
    finally:
        loaded.set()
        watching.join()  # its last line is logged before anything that follows


def log_until(
    done: threading.Event, what: str, thread: threading.Thread, folder: Path, seconds: float
) -> None:
    """Log where the app is as long as something is not done, each time after twice the time.

    Args:
        done: Is set when it is.
        what: Begins the line.
        thread: That the app is on.
        folder: The app's.
        seconds: When to log first.
    """
    pause = seconds
    while not done.wait(pause):
        place = _place(sys._current_frames().get(thread.ident or 0), folder)  # noqa: SLF001 # there is no other way
        _LOG.warning("%s %g s: it is at %s", what, seconds, place)
        pause, seconds = seconds, 2 * seconds


def _place(frame: FrameType | None, folder: Path) -> str:
    """Return the app's innermost line, or the innermost of all when none is the app's."""
    innermost = frame
    while frame is not None and not frame.f_code.co_filename.startswith(str(folder)):
        frame = frame.f_back
    found = frame or innermost
    if found is None:
        return "an unknown line"
    return f"{found.f_code.co_filename}, line {found.f_lineno}, in {found.f_code.co_qualname}"


@contextmanager
def bounded_load(seconds: float, dump: IO[str]) -> Iterator[None]:
    """End the process when the block takes longer, even in native code that holds the interpreter's lock.

    Args:
        seconds: The bound.
        dump: Gets the stacks of all threads before the process ends.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=dump)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def where_it_hung(dump: str, folder: Path) -> str:
    """Return where the import hung, from what `bounded_load` wrote; "" when it wrote nothing.

    Args:
        dump: All threads with their frames, innermost first; the importing thread is the last one.
        folder: The app's; its innermost line comes first in the text.
    """
    if not dump:
        return ""
    frames = [match for each in dump.rpartition("Thread 0x")[2].splitlines() if (match := _FRAME.match(each))]
    lines = [f"{each['file']}, line {each['line']}, in {each['name']}" for each in frames]
    of_app = next((line for line in lines if line.startswith(str(folder))), None)
    head = f"it hangs at {of_app or (lines or ['an unknown line'])[0]}"
    return "\n".join([head, *(f"  {line}" for line in lines)])
