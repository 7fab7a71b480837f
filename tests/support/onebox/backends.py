"""Two backends behind one face: the hub under test, and Microsoft's in-memory backend to compare it with."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, cast

import durabletask.internal.orchestrator_service_pb2_grpc as stubs
import grpc
import pytest
from azure.durable_functions.internal.serialization import DEFAULT_FUNCTIONS_DATA_CONVERTER
from durabletask.client import AsyncTaskHubGrpcClient, OrchestrationState, OrchestrationStatus
from durabletask.entities import EntityInstanceId
from durabletask.serialization import DataConverter
from durabletask.testing.in_memory_backend import InMemoryOrchestrationBackend
from durabletask.worker import TaskHubGrpcWorker

from onebox.clock import Clock, SystemClock
from onebox.faults import FaultPoints, no_faults
from onebox.hub import Hub, HubSettings
from onebox.hub.local_channel import stop_serving
from onebox.hub.model import Status
from onebox.worker import wire
from onebox.worker.child import Worker
from onebox.worker.durable import BindingInputs
from onebox.worker.functions import Catalogue
from onebox.worker.link import Handler, Link
from onebox.worker.processes import WorkerProcesses
from onebox.worker.remote import RemoteInvoker, client_calls
from onebox.worker.runner import Runner
from tests.support.narrowing import existing
from tests.support.onebox.durable_app import App, AppInvoker

# The SDK's codec advises, once per process, to name types when decoding; its own worker is who does not.
SDK_NOTICE = pytest.mark.filterwarnings("ignore:azure.functions .*expected_type:DeprecationWarning")

_IN_WORKER = "the hub, from a worker process"  # an address that only its clients know

_QUIET = logging.getLogger("durabletask.quiet")
_QUIET.setLevel(logging.CRITICAL)


async def eventually(look: Callable[[], Awaitable[bool]]) -> None:
    """Look until it is so, for at most 60 s."""
    async with asyncio.timeout(60):
        while not await look():  # noqa: ASYNC110 - the other side is another process's state: there is no event
            await asyncio.sleep(0.02)


def in_memory_differs(reason: str) -> pytest.MarkDecorator:
    """Mark a case that Microsoft's in-memory backend is not held to, and say why."""
    not_run = pytest.mark.xfail(run=False, reason=f"the in-memory backend: {reason}")
    both = ["hub", "hub_locally", "hub_in_worker", pytest.param("in_memory", marks=not_run)]
    return pytest.mark.parametrize("backend", both, indirect=True)


@dataclass
class Backend:
    """What a conformance case may use."""

    client: AsyncTaskHubGrpcClient
    address: str

    async def run(self, orchestrator: str, **options: Any) -> OrchestrationState:
        """Start an orchestration and wait for its end."""
        instance_id = await self.client.schedule_new_orchestration(orchestrator, **options)
        return await self.finished(instance_id)

    async def finished(self, instance_id: str) -> OrchestrationState:
        state = existing(await self.client.wait_for_orchestration_completion(instance_id, timeout=60))
        return state

    async def until(self, instance_id: str, holds: Callable[[OrchestrationState], bool]) -> None:
        """Wait until something holds of an instance."""

        async def is_so() -> bool:
            state = await self.client.get_orchestration_state(instance_id)
            return state is not None and holds(state)

        await eventually(is_so)

    async def until_suspended(self, instance_id: str) -> None:
        await self.until(instance_id, lambda state: state.runtime_status is OrchestrationStatus.SUSPENDED)

    async def until_shown(self, instance_id: str, custom_status: Any) -> None:
        await self.until(instance_id, lambda state: bool(state.get_custom_status() == custom_status))

    async def until_entity(self, entity_id: EntityInstanceId, state: str) -> None:
        """Wait until an entity has this state, as JSON."""

        async def is_so() -> bool:
            entity = await self.client.get_entity(entity_id)
            return entity is not None and entity.get_state() == state

        await eventually(is_so)


def client_of(address: str, converter: DataConverter | None = None) -> AsyncTaskHubGrpcClient:
    return AsyncTaskHubGrpcClient(host_address=address, logger=_QUIET, data_converter=converter)


@asynccontextmanager
async def running_hub(
    folder: Path,
    functions: App | AppInvoker,
    clock: Clock | None = None,
    settings: HubSettings | None = None,
    faults: FaultPoints = no_faults,
) -> AsyncIterator[Hub]:
    invoker = AppInvoker(functions) if isinstance(functions, App) else functions
    hub = Hub(folder / "hub.db", invoker, clock or SystemClock(), settings, faults)
    await hub.start()
    try:
        yield hub
    finally:
        await hub.stop()


def status_of(hub: Hub, instance_id: str) -> Status:
    return existing(hub.tasks.get(instance_id)).status


def entity_state(hub: Hub, entity_id: str) -> str | None:
    """Return the state as JSON; None when there is no such entity."""
    entity = hub.tasks.get_entity(entity_id)
    return None if entity is None else entity.state


@asynccontextmanager
async def hub_backend(
    folder: Path, app: App, *, locally: bool = False, settings: HubSettings | None = None
) -> AsyncIterator[Backend]:
    """The hub runs functions through the Functions worker, so its clients speak that one's JSON."""
    async with running_hub(folder, app, settings=settings) as hub:
        if locally:
            hub.serve_locally()
        async with client_of(hub.grpc_address, DEFAULT_FUNCTIONS_DATA_CONVERTER) as client:
            yield Backend(client, hub.grpc_address)


class OneWorker:
    """Calls over a link, in place of `WorkerProcesses`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def call(self, method: str, value: Any, *, key: str | None = None) -> Any:
        del key  # there is only one
        return await self._link.call(method, value)


@asynccontextmanager
async def worker_backend(folder: Path, app: App) -> AsyncIterator[Backend]:
    """The hub runs functions over a link as in a worker process, and its client is there, too."""
    ours, theirs = socket.socketpair()
    there = AppInvoker(app)
    runner, inputs = Runner(SystemClock(), None), BindingInputs()
    await Worker(Catalogue(()), runner, there, inputs, lambda: None).serve(theirs)
    handlers: dict[str, Handler] = {}
    link = Link(handlers)
    await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
    here = RemoteInvoker(Catalogue(()), cast("WorkerProcesses", OneWorker(link)))
    here.orchestrators, here.entities, here.activities = there.orchestrators, there.entities, there.activities
    hub = Hub(folder / "hub.db", here, SystemClock(), HubSettings())
    await hub.start()
    hub.serve_locally()
    handlers[wire.CLIENT] = client_calls(hub.grpc_address)
    try:
        await link.call(wire.SERVE, [_IN_WORKER, "{}"])
        async with client_of(_IN_WORKER, DEFAULT_FUNCTIONS_DATA_CONVERTER) as client:
            yield Backend(client, _IN_WORKER)
    finally:
        await hub.stop()
        link.cut()
        stop_serving(_IN_WORKER)


@contextmanager
def in_memory_server(app: App) -> Iterator[tuple[InMemoryOrchestrationBackend, str]]:
    """Microsoft's backend with a worker, on loopback; it takes a second to stop, so many tests share one."""
    backend = InMemoryOrchestrationBackend()
    server = grpc.server(ThreadPoolExecutor(max_workers=16))
    stubs.add_TaskHubSidecarServiceServicer_to_server(backend, server)  # type: ignore[no-untyped-call] # generated
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    backend._server = server
    worker: Any = _worker_of(app, address)  # its start and stop are untyped
    worker.start()
    try:
        yield backend, address
    finally:
        worker.stop()
        backend.stop()


def _worker_of(app: App, address: str) -> TaskHubGrpcWorker:
    worker = TaskHubGrpcWorker(host_address=address, logger=_QUIET)
    for orchestrator in app.orchestrators_by_name.values():
        worker.add_orchestrator(orchestrator)
    for name, entity in app.entities_by_name.items():
        worker.add_entity(entity, name=name)
    for activity in app.activities_by_name.values():
        worker.add_activity(_with_context(activity))
    return worker


def _with_context(activity: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Give an activity of the Functions shape the SDK's own."""

    @wraps(activity)
    def run(_: Any, value: Any) -> Any:
        return activity(value)

    del run.__wrapped__  # the SDK would look through it at the other signature
    return run
