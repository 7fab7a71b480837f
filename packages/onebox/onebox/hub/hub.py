"""Puts the task hub together: lock, store, engine, gRPC."""

import fcntl
import os
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TextIO

import durabletask.internal.orchestrator_service_pb2_grpc as stubs
import grpc

from onebox.clock import Clock
from onebox.data_folder import create_private
from onebox.faults import FaultPoints, no_faults
from onebox.hub.azure_terms import classes_for
from onebox.hub.database import StoreFile, open_reader, open_writer
from onebox.hub.engine import Engine
from onebox.hub.invoker import Invoker
from onebox.hub.listing import Listing
from onebox.hub.local_channel import serve_locally, stop_serving
from onebox.hub.model import HubInUseError, StoreUnusableError
from onebox.hub.reading import Reader
from onebox.hub.servicer import Servicer
from onebox.hub.settings import HubSettings
from onebox.hub.taskhub import TaskHub

_register: Any = stubs.add_TaskHubSidecarServiceServicer_to_server  # generated without types
_ANY_SIZE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class HubLock:
    """Held while a process serves a store."""

    def __init__(self, store_path: Path) -> None:
        self._path = store_path.with_name(store_path.name + ".lock")
        self._file: TextIO | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            HubInUseError: Another process has it; the message says which, and where.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = create_private(self._path).open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            file.close()
            raise HubInUseError(
                f"the task hub in {self._path.parent} is served by another process (pid {owner}); "
                "stop it, or use another data folder"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        """Let go of the lock; the file stays, since removing it would race with the next owner."""
        if self._file is not None:
            self._file.close()
            self._file = None


class Hub:
    """The task hub of one store: takes work in over gRPC, runs it through an invoker.

    Args:
        store_path: The SQLite file; created when missing, with a lock file beside it.
        invoker: Runs the app's functions.
        clock: The only source of time.
        settings: Limits; None takes the defaults.
        faults: Called at each named point, for tests.
        socket: Where gRPC is served, a Unix socket that file modes protect; None takes a free loopback port.
    """

    def __init__(
        self,
        store_path: Path,
        invoker: Invoker,
        clock: Clock,
        settings: HubSettings | None = None,
        faults: FaultPoints = no_faults,
        *,
        socket: Path | None = None,
    ) -> None:
        self._store_path = store_path
        self._invoker = invoker
        self._clock = clock
        self._settings = settings or HubSettings()
        self._classes = classes_for(self._settings.azure)
        self._faults = faults
        self._lock = HubLock(store_path)
        self._connections: list[sqlite3.Connection] = []
        self._engine: Engine | None = None
        self._tasks: TaskHub | None = None
        self._servicer: Servicer | None = None
        self._server: grpc.aio.Server | None = None
        self._socket = socket
        self._address = ""

    @property
    def grpc_address(self) -> str:
        """The gRPC service's address: `host:port`, or `unix:` and a path.

        Raises:
            RuntimeError: The hub is not started.
        """
        if not self._address:
            raise RuntimeError("the task hub is not started")
        return self._address

    @property
    def tasks(self) -> TaskHub:
        """The hub's own API, for whoever runs in this process.

        Raises:
            RuntimeError: The hub is not started.
        """
        if self._tasks is None:
            raise RuntimeError("the task hub is not started")
        return self._tasks

    @property
    def trouble(self) -> str:
        """Why nothing can be committed; "" when everything is well."""
        return "" if self._engine is None else self._engine.writer.trouble

    async def start(self, serving: Callable[[], Awaitable[None]] | None = None) -> None:
        """Open the store, serve gRPC, and take up all work that the store holds.

        Args:
            serving: Awaited once clients are served and before any work is taken up, which may be a client.

        Raises:
            HubInUseError: Another process serves this store.
            StoreUnusableError: A later version has written it, or it is damaged, or cannot be opened.
        """
        self._lock.acquire()
        try:
            await self._serve(self._open(), serving)
        except sqlite3.DatabaseError as error:
            await self.stop()
            raise StoreUnusableError(
                f"cannot open {self._store_path}: {error}; choose another folder with --data, "
                'or see docs/onebox.md, "A damaged store"'
            ) from error
        except BaseException:
            await self.stop()
            raise

    def _open(self) -> TaskHub:
        writing = open_writer(self._store_path)
        reading = open_reader(self._store_path)
        self._connections = [reading, writing]
        self._engine = self._classes.engine(
            db=writing,
            file=StoreFile(self._store_path),
            reader=Reader(reading),
            invoker=self._invoker,
            clock=self._clock,
            settings=self._settings,
            faults=self._faults,
            workers=self._classes.workers,
            transaction=self._classes.transaction,
        )
        self._tasks = self._classes.task_hub(
            self._engine, Listing(reading), self._clock, self._faults, self._settings
        )
        return self._tasks

    async def _serve(self, tasks: TaskHub, serving: Callable[[], Awaitable[None]] | None) -> None:
        self._server = grpc.aio.server(options=_ANY_SIZE)
        self._servicer = Servicer(tasks)
        _register(self._servicer, self._server)
        if self._socket is None:
            self._address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        else:
            self._address = f"unix:{self._socket}"
            self._server.add_insecure_port(self._address)
        await self._server.start()
        if self._socket is not None:
            self._socket.chmod(0o600)
        if serving is not None:
            await serving()
        assert self._engine is not None  # noqa: S101 - _open made it
        await self._engine.start()

    def serve_locally(self) -> None:
        """Let durable clients of this process call the started hub without gRPC; see `local_channel`."""
        serve_locally(self.grpc_address, self._servicer)

    def die(self) -> None:
        """Let the next stop be the death of the host: on Azure's terms what it had fetched stays hidden."""
        if self._engine is not None:
            self._engine.dies = True

    async def settled(self) -> None:
        """Return once nothing can happen before the clock moves or somebody asks for something."""
        if self._engine is not None:
            await self._engine.settled()

    async def stop(self) -> None:
        """Take no more work, let what runs finish within `stop_seconds`, give back the rest, close.

        What is given back is in the store and is taken up by the next start. Stopping twice is harmless.
        """
        if self._engine is not None:
            await self._engine.drain()  # before the server goes: what runs may still want to be a client
        if self._server is not None:
            stop_serving(self._address)
            await self._server.stop(grace=0)
            self._server = None
        if self._engine is not None:
            await self._engine.writer.close()
            self._engine = None
        for connection in self._connections:
            connection.close()
        self._connections = []
        self._tasks, self._servicer, self._address = None, None, ""
        self._lock.release()
