"""The host: puts the parts together, starts them in order, and stops them in the other."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from azure_functions_runtime import get_threadpool_executor

from onebox.app_settings import DEVELOPMENT_STORAGE, load_local_settings
from onebox.banner import banner
from onebox.clock import Clock, SystemClock
from onebox.data_folder import DataFolder
from onebox.environment import STORAGE
from onebox.errors import CannotStartError
from onebox.faults import HostFaults, no_faults
from onebox.host_json import HostJson, read_host_json
from onebox.http.keys import Keys
from onebox.http.server import WebServer, bind
from onebox.hub import HubInUse
from onebox.parts import Parts
from onebox.storage.azurite import Azurite, StoragePorts, free_ports, ports_from
from onebox.worker.failures import watch_runtime_logger
from onebox.worker.loader import load_app

_LOG = logging.getLogger("onebox")

# The promise is to be gone within 10 s of the signal: each phase has its share, the last resort is below it.
_DRAIN_SECONDS = 3
_HUB_SECONDS = 3.0
_LAST_RESORT_SECONDS = 9.5


@dataclass(frozen=True)
class Options:
    """What the command line says.

    Attributes:
        app: The app's folder.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        data: Where everything is kept.
        free_storage_ports: Start Azurite on free ports rather than the well-known ones.
        auth: Ask for access keys.
    """

    app: Path
    host: str
    port: int
    data: Path
    free_storage_ports: bool = False
    auth: bool = False


class Host:
    """One app, served until a signal asks to stop."""

    def __init__(self, options: Options, clock: Clock | None = None, faults: HostFaults = no_faults) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._faults = faults
        self._stopping = asyncio.Event()

    async def serve(self) -> None:
        """Start everything, serve, and stop everything.

        Raises:
            CannotStartError: Something the user has to change stands in the way.
        """
        self._watch_signals()
        data = DataFolder(self._options.data)
        host_json = read_host_json(self._options.app / "host.json")
        load_local_settings(self._options.app / "local.settings.json")
        data.take()
        try:
            with bind(self._options.host, self._options.port) as listener:
                azurite = await self._start_storage(data)
                try:
                    await self._serve_app(host_json, data, listener)
                finally:
                    if azurite is not None:
                        await azurite.stop()
        finally:
            data.release()

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._ask_to_stop)

    def _ask_to_stop(self) -> None:
        if self._stopping.is_set():
            _exit_now(130)
        self._stopping.set()
        last_resort = threading.Timer(_LAST_RESORT_SECONDS, _exit_now, [0])
        last_resort.daemon = True
        last_resort.start()

    async def _start_storage(self, data: DataFolder) -> Azurite | None:
        """Start Azurite when the app asks for development storage; returns None when it does not."""
        if STORAGE.get(os.environ).strip().rstrip(";") != DEVELOPMENT_STORAGE:
            return None
        ports = free_ports() if self._options.free_storage_ports else ports_from(os.environ)
        if ports != StoragePorts():  # an SDK takes development storage to mean the well-known ports
            os.environ[STORAGE.name] = ports.connection_string
        azurite = Azurite(data.azurite, ports)
        await azurite.start()
        return azurite

    async def _serve_app(self, host_json: HostJson, data: DataFolder, listener: socket.socket) -> None:
        watch_runtime_logger()
        catalogue = load_app(self._options.app)
        try:
            keys = Keys.kept_in(data.keys) if self._options.auth else Keys(None)
            parts = Parts(
                catalogue,
                host_json,
                data,
                keys,
                clock=self._clock,
                stop_seconds=_HUB_SECONDS,
                faults=self._faults,
            )
            await self._run_parts(parts, listener)
        finally:
            executor = get_threadpool_executor()
            executor.shutdown(wait=False, cancel_futures=True)

    async def _run_parts(self, parts: Parts, listener: socket.socket) -> None:
        base_url = f"http://{self._options.host}:{listener.getsockname()[1]}"
        server = WebServer(parts.application, listener, _DRAIN_SECONDS)
        parts.loop.start()
        try:
            await parts.hub.start()
        except HubInUse as error:
            raise CannotStartError(str(error)) from None
        try:
            parts.serve_clients(base_url)
            serving = server.start()
            parts.start_triggers()
            parts.admin.state = "Running"
            sys.stdout.write(banner(parts.catalogue, parts.functions.endpoints, base_url) + "\n")
            sys.stdout.flush()
            await _first_of(self._stopping, serving)
            _LOG.info("stopping")
            parts.admin.state = "Stopping"
            parts.application.accepting = False
            await asyncio.gather(server.stop(), parts.stop_triggers(_DRAIN_SECONDS))
        finally:
            await parts.hub.stop()
            parts.loop.stop()
            parts.storage.close()
            await parts.blobs.close()


async def _first_of(asked: asyncio.Event, serving: asyncio.Task[None]) -> None:
    asking = asyncio.ensure_future(asked.wait())
    await asyncio.wait([asking, serving], return_when=asyncio.FIRST_COMPLETED)
    asking.cancel()


def _exit_now(code: int) -> None:
    """Leave without ceremony: what is in flight is given back by whoever finds it at the next start."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
