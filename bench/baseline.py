"""`python -m bench.baseline PORT TARGET_URL DELAY_SECONDS`: plain durable functions, to compare with.

One orchestrator, as first versions of retries are: `call_activity` with the SDK's `RetryPolicy`. It runs on
the SDK's worker with its defaults, on Microsoft's in-memory backend. Nothing of this project is in it.
"""

import logging
import sys
import threading
from collections.abc import Generator
from concurrent import futures
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


class Baseline:
    """The orchestrator and its activity, bound to one target and one delay."""

    def __init__(self, target_url: str, delay_seconds: float) -> None:
        self.client = httpx.Client(base_url=target_url, timeout=30)
        self.policy = task.RetryPolicy(
            first_retry_interval=timedelta(seconds=delay_seconds),
            max_number_of_attempts=MAX_ATTEMPTS,
            max_retry_interval=timedelta(seconds=delay_seconds),
        )

    def call(self, _context: task.ActivityContext, request: dict[str, Any]) -> dict[str, Any]:
        """Posts to the target once; raises for any status but a success."""
        answer = self.client.post(
            request["path"], json=request["json"], headers={"Idempotency-Key": request["key"]}
        )
        answer.raise_for_status()
        body: dict[str, Any] = answer.json()
        return body

    def plain(
        self, context: task.OrchestrationContext, request: dict[str, Any]
    ) -> Generator[task.Task[Any], Any, Any]:
        """Calls the activity with the SDK's retries."""
        return (yield context.call_activity("call", input=request, retry_policy=self.policy))


def serve(port: int, target_url: str, delay_seconds: float) -> None:
    """Serves backend and worker on loopback until the process is ended."""
    baseline = Baseline(target_url, delay_seconds)
    backend = InMemoryOrchestrationBackend()
    # Not backend.start(): that binds every address of the machine.
    server = grpc.server(futures.ThreadPoolExecutor(BACKEND_THREADS))
    add_TaskHubSidecarServiceServicer_to_server(backend, server)  # type: ignore[no-untyped-call] # generated code
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    worker = TaskHubGrpcWorker(host_address=f"127.0.0.1:{port}")
    worker.add_orchestrator(baseline.plain)
    worker.add_activity(baseline.call)
    worker.start()  # type: ignore[no-untyped-call] # the SDK's own
    print("serving", flush=True)
    threading.Event().wait()


def main() -> None:
    """Reads the arguments and serves."""
    logging.disable(logging.WARNING)  # Its lines per turn would cost the baseline time.
    serve(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))


if __name__ == "__main__":
    main()
