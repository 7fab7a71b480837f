"""The app in this process, on onebox's task hub: every invocation counted, the clock moved by hand."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from azure.core.pipeline import AsyncPipeline, Pipeline
from durabletask.internal.orchestrator_service_pb2 import (
    EntityBatchRequest,
    EntityBatchResult,
    OrchestratorResponse,
)

from durable_retry.circuit.cache import close_circuits
from durable_retry.hub.task_hub import TaskHub, close_clients
from durable_retry.rules.operations.operation import OperationInput, run_number
from durable_retry.rules.retry.policy import RetryPolicy, Timeouts
from durable_retry.runtime.clock import reading
from durable_retry_console.metrics.minutes import MINUTES
from onebox.clock import ManualClock
from onebox.hub import Hub
from onebox.hub.invoker import TurnRequest
from onebox.storage.azurite import Azurite
from onebox.storage.ports import free_ports
from onebox.worker.durable import BindingInputs, DurableClients, DurableInvoker, DurableUrls
from onebox.worker.loading import load_app
from onebox.worker.runner import Runner
from scripts.processes import ROOT

SHORTEST_BILLED_SECONDS = 0.1
"""The Consumption plan bills each execution at least 100 ms (Azure Functions pricing)."""
FINISH_SECONDS = 60
POLL_SECONDS = 0.02
MOST_ATTEMPTS = 6


@dataclass(slots=True)
class Meter:
    """What was run, and how long each invocation of any kind took."""

    turns: int = 0
    activities: int = 0
    entity_operations: int = 0
    execution_seconds: list[float] = field(default_factory=list)

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Times one invocation."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.execution_seconds.append(time.perf_counter() - began)

    def billed_seconds(self) -> float:
        """Returns the execution time as the Consumption plan counts it."""
        return sum(max(seconds, SHORTEST_BILLED_SECONDS) for seconds in self.execution_seconds)


class MeteredInvoker(DurableInvoker):
    """Runs the app's functions and counts every invocation."""

    meter = Meter()

    async def orchestrator(self, name: str, request: TurnRequest) -> OrchestratorResponse:
        """Runs and counts a turn."""
        self.meter.turns += 1
        with self.meter.timing():
            return await super().orchestrator(name, request)

    async def entity(self, name: str, request: EntityBatchRequest) -> EntityBatchResult:
        """Runs and counts a batch of entity operations."""
        self.meter.entity_operations += len(request.operations)
        with self.meter.timing():
            return await super().entity(name, request)

    async def activity(self, name: str, instance_id: str, task_id: int, input_json: str | None) -> str | None:
        """Runs and counts an activity."""
        self.meter.activities += 1
        with self.meter.timing():
            return await super().activity(name, instance_id, task_id, input_json)


@dataclass(slots=True)
class Requests:
    """How many requests the Azure clients of this process sent."""

    count: int = 0


@dataclass(slots=True)
class MeteredApp:
    """The running app: its durable client's configuration, its time, its meter, its requests to storage."""

    hub: TaskHub
    clock: ManualClock
    invoker: MeteredInvoker
    table_requests: Requests = field(default_factory=Requests)

    def fresh_meter(self) -> Meter:
        """Starts counting anew and returns the meter that counts."""
        self.invoker.meter = Meter()
        self.table_requests.count = 0
        return self.invoker.meter

    async def run(self, key: str, path: str, *, wait_seconds: float) -> str:
        """Runs one operation to its end, moving the clock over its waits; returns its id.

        Raises:
            TimeoutError: It did not end.
        """
        operation = _operation(key, path, wait_seconds, self.clock.now())
        await self.hub.start_operation(operation)
        async with asyncio.timeout(FINISH_SECONDS):
            while not await self._is_over(operation.operation_id):  # noqa: ASYNC110 # asks over gRPC
                await asyncio.sleep(POLL_SECONDS)
        return operation.operation_id

    async def history_events(self, operation_id: str) -> int:
        """Returns how many events the history of a finished operation has."""
        client = await self.hub.client()
        return len(await client.get_orchestration_history(operation_id))

    async def _is_over(self, operation_id: str) -> bool:
        instance = await self.hub.read_instance(operation_id)
        shown = None if instance is None else instance.custom_status
        if shown is not None and shown["status"] == "waiting_retry" and self.clock.next_due is not None:
            self.clock.advance_to(self.clock.next_due)
        return instance is not None and instance.output is not None


def _operation(key: str, path: str, wait_seconds: float, now: datetime) -> OperationInput:
    policy = RetryPolicy(
        strategy="fixed",
        initial_seconds=wait_seconds,
        max_seconds=wait_seconds,
        max_attempts=MOST_ATTEMPTS,
        jitter="none",
    )
    return OperationInput(
        operation_id=f"op-{key}",
        key=key,
        run=run_number(now),
        source="bench",
        dependency="flaky",
        fingerprint=key,
        policy=policy,
        timeouts=Timeouts(deadline_seconds=0),
        created_at=now,
        request={"method": "POST", "path": path, "query": {}, "headers": {}, "json": {"amount": 5}},
    )


@asynccontextmanager
async def metered_app(folder: Path, target_url: str) -> AsyncIterator[MeteredApp]:
    """Loads the app and serves its task hub on a clock moved by hand; a process can do so once.

    Args:
        folder: Where the hub and the storage keep their data.
        target_url: What the dependency `flaky` is.
    """
    clock = ManualClock(datetime.now(UTC))
    azurite = Azurite(folder / "azurite", free_ports())
    await azurite.start()
    os.environ |= {"FLAKY_TARGET_URL": target_url, "AzureWebJobsStorage": azurite.connection_string}
    catalogue = load_app(ROOT)
    # Metrics are written every few seconds, whatever the number of operations: no cost of one operation.
    MINUTES.end()
    inputs = BindingInputs()
    invoker = MeteredInvoker(catalogue, Runner(clock, None), inputs)
    hub = Hub(folder / "hub", invoker, clock)
    await hub.start()
    try:
        clients = DurableClients(DurableUrls("http://127.0.0.1", "bench"), hub.grpc_address)
        inputs.serve_clients(clients.datum())
        app = MeteredApp(TaskHub(str(clients.datum().value)), clock, invoker)
        with reading(clock.now), counting_requests(app.table_requests):
            yield app
    finally:
        MINUTES.end()  # at the end of the process there is no storage any more
        close_circuits()
        await close_clients()
        await hub.stop()
        await azurite.stop()


@contextmanager
def counting_requests(requests: Requests) -> Iterator[None]:
    """Counts each request that an Azure client of this process sends, synchronous or not."""

    def counted(send: Callable[..., Any]) -> Callable[..., Any]:
        def count_and_send(*arguments: Any, **options: Any) -> Any:
            requests.count += 1
            return send(*arguments, **options)

        return count_and_send

    with (
        patch.object(Pipeline, "run", counted(Pipeline.run)),
        patch.object(AsyncPipeline, "run", counted(AsyncPipeline.run)),
    ):
        yield
