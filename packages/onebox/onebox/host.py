"""The host: starts the components in order, serves until a signal, and stops them in reverse order."""

import asyncio
import atexit
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azure_functions_runtime import get_threadpool_executor

from onebox import CannotStartError, HostEndedError
from onebox.banner import banner, differences
from onebox.clock import Clock, SystemClock
from onebox.composition import Components
from onebox.data_folder import DataFolder
from onebox.environment import load_local_settings, process_count
from onebox.faults import HostFaults, no_faults
from onebox.host_json import HostJson, read_host_json
from onebox.http.access import Browsers
from onebox.http.keys import Keys
from onebox.http.server import BACKLOG, WebServer, base_url, bind
from onebox.hub import HubInUseError, StoreUnusableError
from onebox.signals import stop_signals
from onebox.storage.account import StorageAccount, open_account
from onebox.storage.azurite import PortChoice
from onebox.worker.functions import Catalogue
from onebox.worker.loading import load_app, tune_garbage_collector
from onebox.worker.loops import WorkerLoop
from onebox.worker.processes import WorkerProcesses
from onebox.worker.runner import watch_runtime_logger

_LOG = logging.getLogger("onebox")

ENDED = 3
"""The exit code after `HostEndedError`."""

# The promise is to be gone within 10 s of the signal: each phase has its share, the last resort is below it.
_DRAIN_SECONDS = 3
_DRAIN_GRACE_SECONDS = 0.5
_HUB_SECONDS = 3.0
_HUB_GRACE_SECONDS = 2.0  # to commit and close, once nothing runs
_EXIT_SECONDS = 1.5  # for what the app runs at exit
_LAST_RESORT_SECONDS = 9.5


@dataclass(frozen=True)
class Options:
    """What the command line says.

    Attributes:
        app: The app's folder.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        data: Where everything is kept.
        storage_ports: Where the data folder's storage emulator may listen.
        join_storage: Use the emulator that already listens on the preferred ports.
        auth: Require access keys.
        allowed_hosts: Further Host names to answer to.
    """

    app: Path
    host: str
    port: int
    data: Path
    storage_ports: PortChoice = PortChoice.AUTO
    join_storage: bool = False
    auth: bool = False
    allowed_hosts: tuple[str, ...] = ()


class Host:
    """One app, served until a signal asks to stop."""

    def __init__(
        self,
        options: Options,
        clock: Clock | None = None,
        faults: HostFaults = no_faults,
        components: type[Components] = Components,
    ) -> None:
        self._options = options
        self._components = components
        self._clock = clock or SystemClock()
        self._faults = faults
        self._stopping = asyncio.Event()
        self._ended = ""

    async def serve(self) -> None:
        """Start everything, serve, and stop everything.

        Raises:
            CannotStartError: Something the user has to change stands in the way.
            HostEndedError: All worker processes have crashed too often, where the Functions host ends, too.
        """
        self._watch_signals()
        data = DataFolder(self._options.data)
        load_local_settings(self._options.app / "local.settings.json")
        host_json = read_host_json(self._options.app / "host.json", os.environ)
        data.take()
        try:
            with bind(self._options.host, self._options.port) as listener:
                account = await self._unless_stopped(self._open_account(data))
                try:
                    await self._serve_app(host_json, data, listener, account)
                finally:
                    await account.stop()
        except _StopAskedError:
            _LOG.info("stopped during the start")
        finally:
            data.release()
        if self._ended:
            raise HostEndedError(self._ended)

    def _open_account(self, data: DataFolder) -> Coroutine[Any, Any, StorageAccount]:
        options = self._options
        return open_account(os.environ, data, options.storage_ports, join=options.join_storage)

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, self._ask_to_stop)

    async def _unless_stopped[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Await a part of the start; a signal cancels it.

        Raises:
            _StopAskedError: There was one.
        """
        working = asyncio.ensure_future(work)
        asking = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([working, asking], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return await working
            working.cancel()
            await asyncio.wait([working])
            raise _StopAskedError
        finally:
            asking.cancel()

    def _load_app(self) -> Catalogue:
        """Load the app on this thread, where the event loop stands still meanwhile: a signal interrupts it.

        Raises:
            _StopAskedError: There was a signal; the event loop will see it, too.
        """
        asked = False

        def interrupt(*_: object) -> None:
            nonlocal asked
            if asked:
                _exit_now(130)
            asked = True
            raise _StopAskedError

        for number in stop_signals():
            signal.signal(number, interrupt)
        try:
            return load_app(self._options.app)
        finally:
            self._watch_signals()

    def _ask_to_stop(self) -> None:
        if self._stopping.is_set():
            _exit_now(130)
        self._begin_to_stop(0)

    def _end(self, why: str) -> None:
        """Stop as at a signal, because no worker process is left."""
        if not self._stopping.is_set():
            self._ended = why
            self._begin_to_stop(ENDED)

    def _begin_to_stop(self, code: int) -> None:
        self._stopping.set()
        last_resort = threading.Timer(_LAST_RESORT_SECONDS, _exit_now, [code])
        last_resort.daemon = True
        last_resort.start()

    async def _serve_app(
        self, host_json: HostJson, data: DataFolder, listener: socket.socket, account: StorageAccount
    ) -> None:
        keys = Keys.kept_in(data.keys) if self._options.auth else Keys(None)
        keys.tell_app(os.environ)
        loop = WorkerLoop()
        loop.start()
        processes = await self._worker_processes(host_json, loop)
        try:
            if processes is None:
                watch_runtime_logger()
                catalogue = self._load_app()
            else:
                catalogue = processes.catalogue
            components = self._components(
                catalogue,
                host_json,
                data,
                keys=keys,
                browsers=Browsers(self._options.host, self._options.allowed_hosts),
                account=account,
                clock=self._clock,
                stop_seconds=_HUB_SECONDS,
                faults=self._faults,
                processes=processes,
            )
            await self._run(components, listener, loop)
        finally:
            if processes is not None:
                await loop.run(processes.stop())
            else:
                await _run_exit_functions()
            loop.stop()
            if (executor := get_threadpool_executor()) is not None:
                executor.shutdown(wait=False, cancel_futures=True)

    async def _worker_processes(self, host_json: HostJson, loop: WorkerLoop) -> WorkerProcesses | None:
        """Start them; None when there shall be none."""
        count = process_count(os.environ)
        if not count:
            return None
        here = asyncio.get_running_loop()  # the processes are watched on the other one
        processes = WorkerProcesses(
            count,
            self._options.app,
            host_json.function_timeout,
            self._clock,
            given_up=lambda why: here.call_soon_threadsafe(self._end, why),
        )
        await self._unless_stopped(loop.run(processes.start()))
        return processes

    async def _run(self, components: Components, listener: socket.socket, loop: WorkerLoop) -> None:
        url = base_url(listener)
        server = WebServer(components.application, listener, _DRAIN_SECONDS)
        try:
            await loop.run(components.start_hub(url))
        except (HubInUseError, StoreUnusableError) as error:
            raise CannotStartError(str(error)) from None
        try:
            await loop.run(components.start_triggers())
            tune_garbage_collector()
            loop.watch(self._options.app)
            # Whoever reads the banner can connect, and whoever has an answer can read the banner.
            listener.listen(BACKLOG)
            lists_functions = _LOG.isEnabledFor(logging.DEBUG)
            sys.stdout.write(banner(components, url, self._options.data, lists_functions=lists_functions))
            sys.stdout.flush()
            for each in differences(components.catalogue, components.outputs.types):
                _LOG.warning("%s", each)
            serving = asyncio.wrap_future(loop.submit(server.serve()))
            await _first_of(self._stopping, serving)
            _LOG.info("stopping")
            if self._ended:
                components.hub.die()
            components.admin.state = "Stopping"
            components.application.accepting = False
            server.stop()
            stopping = asyncio.gather(serving, loop.run(components.stop_triggers(_DRAIN_SECONDS)))
            await _within(
                _DRAIN_SECONDS + _DRAIN_GRACE_SECONDS, stopping, "requests and triggers were cut off"
            )
        finally:
            seconds = _HUB_SECONDS + _HUB_GRACE_SECONDS
            await _within(seconds, loop.run(components.close()), "the task hub was not closed")


class _StopAskedError(BaseException):
    """A signal has asked to stop during the start; not an Exception, for the app's code must not catch it."""


async def _first_of(asked: asyncio.Event, serving: asyncio.Future[Any]) -> None:
    asking = asyncio.ensure_future(asked.wait())
    await asyncio.wait([asking, serving], return_when=asyncio.FIRST_COMPLETED)
    asking.cancel()


async def _run_exit_functions() -> None:
    """Run what the app registered with `atexit` while its storage still answers, as in a worker process."""
    try:
        async with asyncio.timeout(_EXIT_SECONDS):
            await asyncio.to_thread(atexit._run_exitfuncs)  # noqa: SLF001 - there is no public name
    except TimeoutError:
        _LOG.warning("a function that the app runs at exit takes long: its storage stops meanwhile")


async def _within(seconds: float, work: Awaitable[object], consequence: str) -> None:
    """Wait for a step of the stop for a limited time; the store is safe without it."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        _LOG.warning("a function blocks its event loop: %s", consequence)


def _exit_now(code: int) -> None:
    """End the process at once; the next start takes up what was in flight."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
