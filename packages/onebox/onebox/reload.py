"""`--reload`: a parent that serves the app in a child process and starts it anew when a file changes."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path

_LOG = logging.getLogger("onebox")
_TETHER = Path(__file__).with_name("tether.py")

_LOOK_SECONDS = 1.0
_SUFFIXES = {".py", ".json", ".toml"}
_PASSED_OVER = {"__pycache__", "node_modules", "venv"}


async def until_changed(folder: Path) -> Path:
    """Return the first file below the folder that was changed, added or removed, other than hidden ones."""
    before = await asyncio.to_thread(_times, folder)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)  # the standard library has no file notifications
        after = await asyncio.to_thread(_times, folder)
        changed = before.items() ^ after.items()
        if changed:
            return min(path for path, _ in changed)


def _times(folder: Path) -> Mapping[Path, int]:
    return dict(_files(folder))


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name in _PASSED_OVER:
            continue
        if path.is_dir():
            yield from _files(path)
        elif path.suffix in _SUFFIXES:
            yield path, path.stat().st_mtime_ns


async def serve_and_reload(command: list[str], app: Path) -> int:
    """Run the command, and again whenever the app's files change; return its exit code after a signal.

    Args:
        command: Serves the app; ends within 10 s of SIGTERM.
        app: The app's folder.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    while True:
        server = await asyncio.create_subprocess_exec(
            sys.executable, "-I", str(_TETHER), str(os.getpid()), *command, start_new_session=True
        )
        changed = await _first_of(stop, until_changed(app))
        if server.returncode is None:
            server.terminate()
        code = await server.wait()
        if changed is None:
            return code
        _LOG.info("%s changed: starting again", changed.relative_to(app))


async def _first_of(stop: asyncio.Event, change: Coroutine[None, None, Path]) -> Path | None:
    """Return what changed; None when the stop came first."""
    stopping, changing = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(change)
    await asyncio.wait([stopping, changing], return_when=asyncio.FIRST_COMPLETED)
    for task in (stopping, changing):
        task.cancel()
    return changing.result() if changing.done() and not stop.is_set() else None
