"""The walk of a reader through the app's code along one request: its files, and the returns between them.

The calls that run are followed in their order, and a function is read where it is called first: a second call
costs nothing. A return is counted where the reader has to go back to a caller's file, after a function of
another file, to meet the next call.

A reader takes some words by their names and does not open them (`WORDS`), nor what subscribes to facts.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from threading import get_ident
from types import CodeType, FrameType
from typing import Final

from scripts.processes import ROOT
from tests.support.narrowing import existing

_APP_FOLDERS: Final = tuple(
    f"{ROOT / folder}/" for folder in ("durable_retry", "orchestrators", "activities", "entities")
)

WORDS: Final = (
    *("durable_retry/base/", "durable_retry/settings/", "durable_retry/storage/"),
    *("durable_retry/telemetry/", "durable_retry/runtime/clock.py", "durable_retry/runtime/concurrency.py"),
    "durable_retry/features/handlers/registry.py",
)
"""Forms of values, settings, rows and queues by name, spans, time."""

_FACTS: Final = "durable_retry/telemetry/facts.py"

_TOOL: Final = sys.monitoring.OPTIMIZER_ID
"""A tool number that no debugger, coverage or profiler takes."""

_is_followed: ContextVar[bool] = ContextVar("is_followed", default=False)
"""False in what runs beside the request."""


@dataclass
class Walk:
    """What was met on the way.

    Attributes:
        last_function: Where the walk ends; None where it ends with the block.
        ran: Every file whose code ran.
        files: Those that a reader opens.
        returns: Where the reader goes back to a caller's file, and for which function.
        room_returns: The same between rooms, folders that is, of all files whose code runs.
    """

    last_function: str | None = None
    ran: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    returns: list[str] = field(default_factory=list)
    room_returns: list[str] = field(default_factory=list)
    _read: set[CodeType] = field(default_factory=set)
    _open_file: str | None = None
    _rooms: set[str] = field(default_factory=set)
    _open_room: str | None = None
    is_over: bool = False

    def enter(self, code: CodeType, callers: list[str]) -> None:
        """Follow a call; `callers` are files, the nearest first."""
        if self.is_over or code in self._read:
            return
        self._read.add(code)
        file = existing(_file_of(code))
        self.ran.add(file)
        self.is_over = code.co_name == self.last_function
        self._enter_room(room_of(file), callers, code.co_qualname)
        if file.startswith(WORDS) or (_FACTS in callers and file != _FACTS):
            return
        if callers and callers[0] in self.files - {self._open_file}:
            self.returns.append(f"{callers[0]}: {code.co_qualname}")
        self.files.add(file)
        self._open_file = file

    def _enter_room(self, room: str, callers: list[str], function: str) -> None:
        if callers and room_of(callers[0]) in self._rooms - {self._open_room}:
            self.room_returns.append(f"{room_of(callers[0])}: {function}")
        self._rooms.add(room)
        self._open_room = room


def room_of(file: str) -> str:
    """Return the folder that is a room: `durable_retry/attempt`, or `activities`."""
    parts = Path(file).parts[:-1]
    return "/".join(parts[:3] if parts[1:2] == ("features",) else parts[:2])


@contextmanager
def walking(walk: Walk) -> Iterator[None]:
    """Follow the calls that are made in the block, and in threads that it starts."""
    monitoring = sys.monitoring
    followed = _is_followed.set(True)
    task, thread = _running_task(), get_ident()

    def started(code: CodeType, _offset: int) -> object:
        if _file_of(code) is None or code.co_name == "<module>":
            return monitoring.DISABLE
        # A task or a timer that the request leaves behind, such as those of the index, has its context.
        running = _running_task()
        is_of_request = running is task or (running is None and get_ident() != thread)
        if _is_followed.get() and is_of_request:
            walk.enter(code, _callers_of(sys._getframe(1)))
        return None

    monitoring.use_tool_id(_TOOL, "walk")
    monitoring.register_callback(_TOOL, monitoring.events.PY_START, started)
    monitoring.set_events(_TOOL, monitoring.events.PY_START)
    try:
        yield
    finally:
        monitoring.set_events(_TOOL, monitoring.events.NO_EVENTS)
        monitoring.register_callback(_TOOL, monitoring.events.PY_START, None)
        monitoring.free_tool_id(_TOOL)
        monitoring.restart_events()
        _is_followed.reset(followed)


def _running_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread without a loop
        return None


def _callers_of(frame: FrameType) -> list[str]:
    """Return the files of the app's code above a frame, the nearest first."""
    callers = []
    above = frame.f_back
    while above is not None:
        file = _file_of(above.f_code)
        if file is not None:
            callers.append(file)
        above = above.f_back
    return callers


def _file_of(code: CodeType) -> str | None:
    if not code.co_filename.startswith(_APP_FOLDERS):
        return None
    return str(Path(code.co_filename).relative_to(ROOT))
