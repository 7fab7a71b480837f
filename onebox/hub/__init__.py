"""A durable task hub on SQLite, for one machine."""

from pathlib import Path

from onebox.clock import Clock
from onebox.hub.invoker import InvocationFailed, Invoker
from onebox.hub.settings import HubSettings

__all__ = ["Hub", "HubSettings", "InvocationFailed", "Invoker"]


class Hub:
    """The task hub of one data folder: its store, its dispatcher and its gRPC service."""

    def __init__(
        self, store_path: Path, invoker: Invoker, clock: Clock, settings: HubSettings | None = None
    ) -> None:
        self._store_path = store_path
        self._invoker = invoker
        self._clock = clock
        self._settings = settings or HubSettings()
        self._grpc_address: str | None = None

    @property
    def grpc_address(self) -> str:
        """`host:port` of the gRPC service, once started.

        Raises:
            RuntimeError: The hub is not started.
        """
        if self._grpc_address is None:
            raise RuntimeError("the task hub is not started")
        return self._grpc_address

    async def start(self) -> None:
        """Open the store, take back what a dead owner held, serve gRPC and begin to dispatch.

        Raises:
            HubInUse: Another process serves this store.
        """
        raise NotImplementedError

    async def stop(self) -> None:
        """Take no more work, let what runs finish within `stop_seconds`, give back the rest, close."""
        raise NotImplementedError
