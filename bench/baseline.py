"""Plain durable functions to compare with.

One orchestrator, as first versions of retries are: `call_activity` with the SDK's `RetryPolicy`. It runs on
the SDK's worker with its defaults, on Microsoft's in-memory backend. Nothing of this project is in it.
"""

import logging
from collections.abc import Generator, Iterator
from concurrent import futures
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import grpc
import httpx
from durabletask import task
from durabletask.internal.orchestrator_service_pb2_grpc import add_TaskHubSidecarServiceServicer_to_server
from durabletask.testing import InMemoryOrchestrationBackend
from durabletask.worker import TaskHubGrpcWorker

BACKEND_THREADS = 10  # as InMemoryOrchestrationBackend.start() has
MAX_ATTEMPTS = 6


class PlainFunctions:
    """The orchestrator and its activity, bound to one target and one policy.

    Args:
        target_url: What it calls.
        delay_seconds: Before the second attempt.
        factor: By which the delay grows from attempt to attempt.
        longest_seconds: The longest delay; less than the first: it does not grow.
        attempts: How many at most.
    """

    def __init__(
        self,
        target_url: str,
        delay_seconds: float,
        *,
        factor: float = 1.0,
        longest_seconds: float = 0.0,
        attempts: int = MAX_ATTEMPTS,
    ) -> None:
        self.client = httpx.Client(base_url=target_url, timeout=30)
        self.policy = task.RetryPolicy(
            first_retry_interval=timedelta(seconds=delay_seconds),
            max_number_of_attempts=attempts,
            backoff_coefficient=factor,
            max_retry_interval=timedelta(seconds=max(longest_seconds, delay_seconds)),
        )

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Posts to the target once; raises for any status but a success."""
        headers = {"Idempotency-Key": request["key"]}
        answer = self.client.post(request["path"], json=request["json"], headers=headers)
        answer.raise_for_status()
        body: dict[str, Any] = answer.json()
        return body

    def plain(
        self, context: task.OrchestrationContext, request: dict[str, Any]
    ) -> Generator[task.Task[Any], Any, Any]:
        """Calls the activity with the SDK's retries."""
        return (yield context.call_activity("call", input=request, retry_policy=self.policy))


@contextmanager
def serving(functions: PlainFunctions, port: int) -> Iterator[str]:
    """Serves backend and worker on loopback and gives the backend's address.

    It does what `backend.start()` does, except that this binds every address of the machine.
    """
    address, backend = f"127.0.0.1:{port}", InMemoryOrchestrationBackend()
    server = grpc.server(futures.ThreadPoolExecutor(BACKEND_THREADS))
    add_TaskHubSidecarServiceServicer_to_server(backend, server)  # type: ignore[no-untyped-call] # generated code
    server.add_insecure_port(address)
    server.start()
    worker = TaskHubGrpcWorker(host_address=address, logger=_quiet())

    def call(_context: task.ActivityContext, request: dict[str, Any]) -> dict[str, Any]:
        return functions.call(request)

    worker.add_orchestrator(functions.plain)
    worker.add_activity(call)
    worker.start()  # type: ignore[no-untyped-call] # the SDK's own
    try:
        yield address
    finally:
        worker.stop()  # type: ignore[no-untyped-call] # the SDK's own
        backend.stop()
        server.stop(grace=None)


def _quiet() -> logging.Logger:
    """Returns a logger for the SDK, whose lines per turn would cost the baseline time."""
    logger = logging.getLogger("bench.baseline")
    logger.setLevel(logging.ERROR)
    return logger
