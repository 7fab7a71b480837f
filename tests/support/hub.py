"""A task hub over gRPC in this process, with the app's own orchestration and entity on it.

It is Microsoft's in-memory backend with the SDK's own worker; only the answers of activities are the test's.
"""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from threading import Thread
from typing import Any

from azure.durable_functions.internal.serialization import DEFAULT_FUNCTIONS_DATA_CONVERTER
from durabletask import task
from durabletask.testing import create_test_backend
from durabletask.testing.in_memory_backend import InMemoryOrchestrationBackend
from durabletask.worker import ConcurrencyOptions, TaskHubGrpcWorker

from activities import ACTIVITIES
from activities.circuit_controls import wake_waiting
from durable_retry.app import harden_runtime
from durable_retry.features.circuit_controls.names import WAKE_WAITING
from durable_retry.hub.task_hub import TaskHub, close_clients
from durable_retry.plugins import features
from durable_retry_console.bulk import names as bulk_names
from scripts.processes import free_port
from tests.support.builders import Activities, failing
from tests.support.parts import AROUND_OPERATIONS, ENTITIES, OPERATIONS

_ACTIVITIES = {
    *(name for each in chain(ACTIVITIES, *(one.activities for one in features())) for name in each.names),
    *(bulk_names.BULK_PAGE, bulk_names.BULK_BATCH, bulk_names.BULK_ENDS),
} - {WAKE_WAITING}

_QUIET = logging.getLogger("durabletask.quiet")
_QUIET.setLevel(logging.CRITICAL)

_STOPS: list[Thread] = []


@dataclass
class TaskHubStage:
    """A running task hub.

    Attributes:
        binding: What functions get as `hub`.
        backend: The hub itself.
        answer: What activities give.
        activities: The calls that were made.
    """

    binding: TaskHub
    backend: InMemoryOrchestrationBackend
    answer: Activities = field(default_factory=lambda: failing(0))
    activities: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def call(self, name: str, given: dict[str, Any]) -> Any:
        self.activities.append((name, given))
        return self.answer(name, given)


def binding_for(port: int) -> TaskHub:
    """Return what functions get as `hub`."""
    return TaskHub(
        json.dumps({"taskHubName": "test", "rpcBaseUrl": f"127.0.0.1:{port}", "startsAreAtomic": True})
    )


@contextmanager
def task_hub_stage(
    *, parts: bool = False, instead: Mapping[str, Any] = {}, activities_at_once: int | None = None
) -> Iterator[TaskHubStage]:
    """Run a task hub for a while.

    Args:
        activities_at_once: So many, the others are queued; None for as many as the SDK runs.
        parts: Whether the outbox, batches, sagas, bulk actions and calls run too.
        instead: Orchestrators that run in place of the app's own.
    """
    harden_runtime()
    port = free_port()
    backend = create_test_backend(port=port)
    stage = TaskHubStage(binding_for(port), backend)
    worker = TaskHubGrpcWorker(
        host_address=f"127.0.0.1:{port}",
        logger=_QUIET,
        data_converter=DEFAULT_FUNCTIONS_DATA_CONVERTER,
        concurrency_options=ConcurrencyOptions(maximum_concurrent_activity_work_items=activities_at_once),
    )
    orchestrators = OPERATIONS | (AROUND_OPERATIONS if parts else {})
    for name, orchestrator in {**orchestrators, **instead}.items():
        worker.add_orchestrator(_named(orchestrator, name))
    for name in _ACTIVITIES:
        worker.add_activity(_activity(stage, name))
    worker.add_activity(_wake_waiting(stage))
    for name, entity in ENTITIES.items():
        worker.add_entity(entity, name=name)
    worker.start()  # type: ignore[no-untyped-call] # the SDK leaves it unannotated
    try:
        yield stage
    finally:
        # The worker looks once a second whether it has to stop; the next test need not wait for that.
        stops = Thread(target=_stop, args=(worker, backend), name="stops a task hub")
        _STOPS.append(stops)
        stops.start()


def wait_for_stops() -> None:
    """Wait until each hub has stopped.

    An interpreter that ends shuts its thread pools first. A hub that still runs then answers no call, and the
    worker waits for that answer forever.
    """
    while _STOPS:
        _STOPS.pop().join()


def _stop(worker: TaskHubGrpcWorker, backend: InMemoryOrchestrationBackend) -> None:
    worker.stop()  # type: ignore[no-untyped-call] # as above
    backend.stop()


def _activity(stage: TaskHubStage, name: str) -> Any:
    def run(_ctx: task.ActivityContext, given: dict[str, Any]) -> Any:
        return stage.call(name, given)

    return _named(run, name)


def _wake_waiting(stage: TaskHubStage) -> Any:
    """The app's own activity, on a loop of its own: this worker runs activities in threads."""

    async def wake(given: dict[str, Any]) -> dict[str, Any]:
        try:
            return await wake_waiting(given, stage.binding)
        finally:
            await close_clients()

    def run(_ctx: task.ActivityContext, given: dict[str, Any]) -> Any:
        stage.activities.append((WAKE_WAITING, given))
        return asyncio.run(wake(given))

    return _named(run, WAKE_WAITING)


def _named(function: Any, name: str) -> Any:
    function.__name__ = name
    return function
