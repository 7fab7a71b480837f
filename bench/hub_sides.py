"""The two task hubs, each in this process with a worker and a client over gRPC on loopback."""

import logging
from collections.abc import AsyncIterator, Iterator
from concurrent import futures
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
from azure.durable_functions.internal.serialization import DEFAULT_FUNCTIONS_DATA_CONVERTER
from durabletask import task
from durabletask.client import AsyncTaskHubGrpcClient
from durabletask.internal.orchestrator_service_pb2_grpc import add_TaskHubSidecarServiceServicer_to_server
from durabletask.testing import InMemoryOrchestrationBackend
from durabletask.worker import TaskHubGrpcWorker

from bench.baseline import BACKEND_THREADS
from bench.hub_functions import Tally, functions
from onebox.clock import SystemClock
from onebox.hub import Hub
from tests.integration.hub.durable_app import AppInvoker

_QUIET = logging.getLogger("bench.hub")
_QUIET.setLevel(logging.ERROR)


@asynccontextmanager
async def onebox_hub(folder: Path) -> AsyncIterator[tuple[Hub, AsyncTaskHubGrpcClient]]:
    """The hub of onebox, on disk; its functions run through the Functions worker, as in the host."""
    hub = Hub(folder / "hub.sqlite", AppInvoker(functions()), SystemClock())
    await hub.start()
    client = AsyncTaskHubGrpcClient(
        host_address=hub.grpc_address, logger=_QUIET, data_converter=DEFAULT_FUNCTIONS_DATA_CONVERTER
    )
    try:
        async with client:
            yield hub, client
    finally:
        await hub.stop()


@asynccontextmanager
async def in_memory_hub() -> AsyncIterator[AsyncTaskHubGrpcClient]:
    """Microsoft's in-memory backend with the SDK's own worker, both with their defaults."""
    with _in_memory() as address:
        async with AsyncTaskHubGrpcClient(host_address=address, logger=_QUIET) as client:
            yield client


@contextmanager
def _in_memory() -> Iterator[str]:
    backend = InMemoryOrchestrationBackend()
    server = grpc.server(futures.ThreadPoolExecutor(BACKEND_THREADS))
    add_TaskHubSidecarServiceServicer_to_server(backend, server)  # type: ignore[no-untyped-call] # generated code
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    worker: Any = _worker(address)  # its start and stop are untyped
    worker.start()
    try:
        yield address
    finally:
        worker.stop()
        backend.stop()
        server.stop(grace=None)


def _worker(address: str) -> TaskHubGrpcWorker:
    app = functions()
    worker = TaskHubGrpcWorker(host_address=address, logger=_QUIET)
    for orchestrator in app.orchestrators_by_name.values():
        worker.add_orchestrator(orchestrator)

    def same(_context: task.ActivityContext, value: int) -> int:
        return int(app.activities_by_name["same"](value))

    worker.add_activity(same)
    worker.add_entity(Tally, name="tally")
    return worker
