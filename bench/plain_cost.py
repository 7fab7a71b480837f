"""What the same work costs as plain durable functions."""

import asyncio
import logging

import grpc
from durabletask.client import AsyncTaskHubGrpcClient
from durabletask.internal.orchestrator_service_pb2 import (
    ActivityResponse,
    CompleteTaskResponse,
    OrchestratorResponse,
)
from durabletask.testing import InMemoryOrchestrationBackend

from bench.baseline import PlainFunctions, serving
from scripts.processes import free_port

DELAY_SECONDS = 0.05
FINISH_SECONDS = 30


class CountingBackend(InMemoryOrchestrationBackend):
    """The in-memory backend, which also counts what its worker completed."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self.activities = 0

    def CompleteOrchestratorTask(  # noqa: N802 # the protocol's name
        self, request: OrchestratorResponse, context: grpc.ServicerContext
    ) -> CompleteTaskResponse:
        """Counts a turn."""
        self.turns += 1
        return super().CompleteOrchestratorTask(request, context)

    def CompleteActivityTask(  # noqa: N802 # the protocol's name
        self, request: ActivityResponse, context: grpc.ServicerContext
    ) -> CompleteTaskResponse:
        """Counts an activity execution."""
        self.activities += 1
        return super().CompleteActivityTask(request, context)


async def plain_cost(target_url: str, failures: int) -> tuple[int, int, int]:
    """Runs one orchestration whose first calls fail.

    Returns:
        Orchestrator turns, activity executions, history events.
    """
    backend = CountingBackend()
    key = f"plain-cost-{failures}"
    quiet = logging.getLogger("bench.plain_cost")
    quiet.setLevel(logging.ERROR)
    with serving(PlainFunctions(target_url, DELAY_SECONDS), backend, free_port()) as address:
        async with AsyncTaskHubGrpcClient(host_address=address, logger=quiet) as client:
            request = {"path": f"/fail/{failures}", "key": key, "json": {"amount": 5}}
            await client.schedule_new_orchestration("plain", input=request, instance_id=key)
            state = await client.wait_for_orchestration_completion(key, timeout=FINISH_SECONDS)
            if state is not None:
                state.raise_if_failed()  # type: ignore[no-untyped-call] # the SDK's own
            history = await client.get_orchestration_history(key)
        await asyncio.sleep(0)
    return backend.turns, backend.activities, len(history)
