"""Worker processes: starts them, watches them, starts them again when they end, and stops them.

starting ─► running ─► ended ─(pause, which doubles while they end soon)─► starting
                         └─(too many crashes)─► gone; when all of them are, the host ends
"""

import asyncio
import itertools
import logging
import os
import signal
import socket
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from onebox import CannotStartError
from onebox.clock import Clock
from onebox.worker import wire
from onebox.worker.child import Configuration
from onebox.worker.crashes import Crashes
from onebox.worker.functions import Catalogue
from onebox.worker.link import Handler, Link, RefusedError, WorkerBlockedError, WorkerLostError
from onebox.worker.loops import AttemptClock
from onebox.worker.runner import OUT_OF_TIME
from onebox.worker.stalls import where_it_hung

_LOG = logging.getLogger("onebox")
_FIRST_PAUSE: Final = timedelta(milliseconds=100)
_LONGEST_PAUSE: Final = timedelta(seconds=30)
_HEALTHY_SECONDS: Final = 60.0  # after so long a run the pause before a restart is the first one again
_STOP_SECONDS: Final = 2.0
_LOAD_SECONDS: Final = 60.0  # the time that the Functions host gives a worker
# A process that blocks is passed over within the sum of the two.
_LOOK_SECONDS: Final = 0.2  # between two looks at a process that owes an answer
_BLOCKED_SECONDS: Final = 0.5  # it answers nothing for so long; a busy machine is slower than an idle one
_REPORT_SECONDS: Final = 1.0  # beyond functionTimeout, for the process to report the timeout itself


@dataclass(slots=True)
class _Slot:
    """One of the processes, through all its restarts.

    Attributes:
        link: To the process that runs; None while none does.
        restarts: How often the process was started again.
        is_replaced: Whether it was the host that ended the process, which then is no crash.
        is_gone: Whether it is not started again.
    """

    number: int
    process: asyncio.subprocess.Process | None = None
    link: Link | None = None
    restarts: int = 0
    is_replaced: bool = False
    is_gone: bool = False
    pause: timedelta = field(default=_FIRST_PAUSE)
    keeping: asyncio.Task[None] | None = None
    watching: asyncio.Task[None] | None = None


class WorkerProcesses:
    """Processes that run the functions of one app; used on one event loop.

    Args:
        count: How many.
        app: The app's folder.
        function_timeout: How long a function may take; None for no limit.
        clock: Paces restarts.
        load_seconds: How long a process may take to load the app.
        given_up: Called with the reason when all of them have crashed too often; none is started again.

    Attributes:
        handlers: What the processes may call in the host, by method.
        catalogue: The app's functions, once started.
        streams: Whether its HTTP functions stream.
    """

    def __init__(
        self,
        count: int,
        app: Path,
        function_timeout: timedelta | None,
        clock: Clock,
        *,
        load_seconds: float = _LOAD_SECONDS,
        given_up: Callable[[str], object] = lambda _: None,
    ) -> None:
        seconds = None if function_timeout is None else function_timeout.total_seconds()
        verbose = logging.getLogger("onebox").isEnabledFor(logging.DEBUG)
        self._configuration = Configuration(str(app), os.getpid(), seconds, verbose, load_seconds, dump=-1)
        self._limit = None if seconds is None else AttemptClock(seconds + _REPORT_SECONDS)
        self._clock = clock
        self._slots = [_Slot(number) for number in range(count)]
        self._crashes = Crashes(count, clock)
        self._given_up = given_up
        self._turns = itertools.count()
        self._available = asyncio.Event()
        self._bound: dict[str, Link] = {}
        self._stopping = asyncio.Event()
        self._clients: Any = None
        self._obstacle = ""
        self.handlers: dict[str, Handler] = {}
        self.catalogue = Catalogue(())
        self.streams = False

    async def start(self) -> None:
        """Start all of them.

        Raises:
            CannotStartError: The app cannot be loaded.
        """
        try:
            catalogues = await asyncio.gather(*map(self._start, self._slots))
        except BaseException:
            await self.stop()
            raise
        for slot in self._slots:
            slot.keeping = asyncio.create_task(self._keep(slot))
            slot.watching = asyncio.create_task(self._watch(slot))
        self.catalogue = catalogues[0]

    async def serve_clients(self, address: str, clients: str) -> None:
        """Send each process, now and after restarts, the hub's address and the data of client bindings."""
        self._clients = [address, clients]
        for slot in self._slots:
            if slot.link is not None:
                with suppress(WorkerLostError):
                    await slot.link.call(wire.SERVE, self._clients)

    async def call(self, method: str, value: Any, *, key: str | None = None) -> Any:
        """Call one of the processes; wait for one while none runs.

        Args:
            method: One of `wire`.
            value: For it.
            key: Calls with the same key go to the same process as long as it runs and answers; None takes
                the least busy.

        Raises:
            RefusedError: The process answered with an error, or not within functionTimeout. After a timeout
                it is replaced, as in the Functions host: the function may block a thread, or the event loop,
                for ever.
            WorkerLostError: The process ended before it answered; how far it came is unknown.
        """
        try:
            # Moved once at most: it may be this call itself that blocks a process.
            return await self._call(await self._available_link(key), method, value)
        except WorkerBlockedError:
            link = await self._available_link(key)
            return await self._call(link, method, value, is_movable=False)

    async def _call(self, link: Link, method: str, value: Any, *, is_movable: bool = True) -> Any:
        work = link.call(method, value, is_movable=is_movable and method in wire.MOVABLE)
        try:
            return await (work if self._limit is None else self._limit.run(work))
        except TimeoutError:
            self._replace(link)
            text = f"no answer within functionTimeout ({self._configuration.timeout_seconds:g} s)"
            raise RefusedError(wire.FAILED, [OUT_OF_TIME, text, text]) from None
        except RefusedError as refused:
            if refused.name == wire.FAILED and refused.details[0] == OUT_OF_TIME:
                self._replace(link)
            raise

    @asynccontextmanager
    async def one(self, key: str) -> AsyncIterator[Link]:
        """Bind a key to the least busy process: within the block, calls with the key go there or fail."""
        link = self._bound[key] = await self._available_link(None)
        try:
            yield link
        finally:
            del self._bound[key]

    async def _available_link(self, key: str | None) -> Link:
        while (link := self._pick(key)) is None:
            self._available.clear()
            await self._available.wait()
        return link

    def _replace(self, link: Link) -> None:
        """End the process behind a link, unless it has ended; `_keep` starts another."""
        for slot in self._slots:
            if slot.link is link and slot.process is not None and slot.process.returncode is None:
                _LOG.error("worker process %d is replaced: a function ran out of time", slot.process.pid)
                link.cut()
                slot.is_replaced = True
                slot.process.kill()

    def _pick(self, key: str | None) -> Link | None:
        if key is not None and (bound := self._bound.get(key)) is not None:
            return bound
        begin = (next(self._turns) if key is None else zlib.crc32(key.encode())) % len(self._slots)
        links = [slot.link for slot in (*self._slots[begin:], *self._slots[:begin])]
        running = [each for each in links if each is not None and each.is_open]
        if not running:
            return None
        running = [each for each in running if not each.is_blocked] or running
        return running[0] if key is not None else min(running, key=lambda link: link.waiting)

    @property
    def trouble(self) -> str:
        """Why no function can run; "" when at least one process does."""
        if self._stopping.is_set() or any(slot.link is not None for slot in self._slots):
            return ""
        return self._obstacle or "no worker process runs"

    def described(self) -> list[Mapping[str, Any]]:
        """Return their states for the host's status."""
        return [
            {
                "pid": slot.process.pid if slot.process is not None else None,
                "state": "Running" if slot.link is not None else "Starting",
                "restarts": slot.restarts,
            }
            for slot in self._slots
        ]

    async def stop(self) -> None:
        """Ask all of them to stop; kill those that do not within 2 s."""
        self._stopping.set()
        for slot in self._slots:
            for task in (slot.keeping, slot.watching):
                if task is not None:
                    task.cancel()
        await asyncio.gather(*map(self._stop, self._slots))

    async def _start(self, slot: _Slot) -> Catalogue:
        """Start the process of a slot, and wait until it has loaded the app.

        Raises:
            CannotStartError: It cannot load it.
            _EndedWhileLoadingError: It has ended before it had, or did not load it in time.
        """
        with TemporaryFile("w+") as dump:
            slot.process, link = await self._spawn(dump.fileno())
            try:
                functions, self.streams = await link.call(wire.FUNCTIONS)
                if self._clients is not None:
                    await link.call(wire.SERVE, self._clients)
            except RefusedError as refused:
                slot.process.kill()
                await slot.process.wait()
                slot.process = None
                raise CannotStartError(refused.details) from None
            except WorkerLostError:
                process, slot.process = slot.process, None
                ended = _ending(await process.wait())
                dump.seek(0)
                raise _EndedWhileLoadingError(self._not_loaded(process.pid, ended, dump.read())) from None
        slot.link = link
        self._available.set()
        return wire.unpack_functions(functions)

    async def _spawn(self, dump: int) -> tuple[asyncio.subprocess.Process, Link]:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, *_same_path(), "-m", "onebox.worker", str(theirs.fileno())]
            configuration = replace(self._configuration, dump=dump)
            process = await asyncio.create_subprocess_exec(
                *command, configuration.as_text(), pass_fds=[theirs.fileno(), dump]
            )
        link = Link(self.handlers)
        await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
        return process, link

    def _not_loaded(self, pid: int, ended: str, dump: str) -> str:
        """Return why a process ended before it had loaded the app; there is a dump when it took too long."""
        if place := where_it_hung(dump, Path(self._configuration.app)):
            seconds = self._configuration.load_seconds
            return f"worker process {pid} did not load the app within {seconds:g} s: {place}"
        return f"a worker process {ended} while it loaded the app"

    async def _keep(self, slot: _Slot) -> None:
        """Start the process of a slot again whenever it has ended, until there are too many crashes."""
        started = self._clock.monotonic()
        while True:
            if slot.process is not None:
                code = await slot.process.wait()
                if self._clock.monotonic() - started >= _HEALTHY_SECONDS:
                    slot.pause = _FIRST_PAUSE
                what = f"worker process {slot.process.pid} {_ending(code)}"
                is_crash, slot.is_replaced = not slot.is_replaced, False
                if self._may_start_again(slot, what, is_crash=is_crash):
                    _LOG.error("%s; it is started again in %.1f s", what, slot.pause.total_seconds())
            if slot.is_gone:
                return
            await self._wait(slot.pause)
            slot.pause = min(2 * slot.pause, _LONGEST_PAUSE)
            slot.restarts += 1
            started = self._clock.monotonic()
            try:
                await self._start(slot)
            except CannotStartError as obstacle:
                _LOG.error("%s", obstacle)
                is_crash = isinstance(obstacle, _EndedWhileLoadingError)
                self._may_start_again(slot, str(obstacle), is_crash=is_crash)
            else:
                _LOG.info("worker process %d runs", slot.process.pid if slot.process else 0)

    def _may_start_again(self, slot: _Slot, what: str, *, is_crash: bool) -> bool:
        """Note the end of a slot's process; return whether another is to be started in its place."""
        slot.process = None
        if slot.link is not None:
            slot.link.cut()
            slot.link = None
        self._obstacle = what
        if is_crash:
            self._crashes.note()
            slot.is_gone = self._crashes.are_too_many
        if slot.is_gone:
            _LOG.error("%s; after %d crashes it is not started again", what, self._crashes.count)
            if all(each.is_gone for each in self._slots):
                self._given_up(f"{what}: after {self._crashes.count} crashes none is started again")
        return not slot.is_gone

    async def _watch(self, slot: _Slot) -> None:
        """Look whether the process of a slot answers, while it owes an answer, and move calls when not."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            link = slot.link
            if link is None or not link.waiting:
                continue
            with suppress(WorkerLostError):
                await link.look(wire.LOOK, _BLOCKED_SECONDS)
            if link.is_blocked and any(each.link and not each.link.is_blocked for each in self._slots):
                link.give_up()

    async def _wait(self, pause: timedelta) -> None:
        due = self._clock.now() + pause
        while self._clock.now() < due and not self._stopping.is_set():
            await self._clock.wait(due, self._stopping)

    async def _stop(self, slot: _Slot) -> None:
        process = slot.process
        if process is None:
            return
        if slot.link is not None:
            slot.link.abandon()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                if slot.link is not None:
                    with suppress(WorkerLostError, RefusedError):
                        await slot.link.call(wire.STOP)
                    await process.wait()
        except TimeoutError:
            _LOG.warning("worker process %d does not end: it is killed", process.pid)
        if process.returncode is None:
            process.kill()
            await process.wait()
        if slot.link is not None:
            slot.link.cut()


class _EndedWhileLoadingError(CannotStartError):
    """A process ended before it had loaded the app."""


def _same_path() -> list[str]:
    """Return the option that keeps the working directory off the path of imports, unless it is on it here."""
    return [] if {"", os.getcwd()} & set(sys.path) else ["-P"]  # noqa: PTH109 - as text, like its entries


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by {signal.Signals(-code).name}"
