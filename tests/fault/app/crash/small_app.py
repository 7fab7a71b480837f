"""The app's durable functions on onebox's task hub, without HTTP, timers and queues: soon up, soon killed."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, override

from durable_retry.hub.task_hub import TaskHub
from onebox.clock import SystemClock
from onebox.faults import no_faults
from onebox.hub import FaultPoints, Hub, HubSettings
from onebox.hub import turn as hub_turn
from onebox.worker.durable import BindingInputs, DurableClients, DurableInvoker, DurableUrls
from onebox.worker.loading import load_app
from onebox.worker.runner import Runner
from scripts.processes import ROOT
from tests.fault.app.crash.places import Places, subject, writer

SETTINGS = HubSettings(max_activities=1_000)
"""Whoever stands still takes an activity's place."""


@dataclass
class SmallApp:
    """A running app.

    Attributes:
        hub: Its task hub.
        binding: What functions get as `hub`.
        places: Where its writes pass.
        activities: Names of its activities.
        letters: Dead letters by subject.
    """

    hub: Hub
    binding: TaskHub
    places: Places
    activities: Collection[str]
    letters: dict[str, str] = field(default_factory=dict)


class Invoker(DurableInvoker):
    """Knows on whose behalf an activity runs, and can run each of them twice, as a host may."""

    def __init__(self, *given: Any, places: Places, twice: bool) -> None:
        super().__init__(*given)
        self._places = places
        self._twice = twice

    @override
    async def activity(self, name: str, instance_id: str, task_id: int, input_json: str | None) -> str | None:
        writer.set(name)
        subject.set(self._places.subject_of(f"{instance_id} {input_json}"))
        if self._twice:
            await super().activity(name, instance_id, task_id, input_json)
        return await super().activity(name, instance_id, task_id, input_json)


@asynccontextmanager
async def small_app(
    folder: Path, places: Places, *, twice: bool, faults: FaultPoints = no_faults
) -> AsyncIterator[SmallApp]:
    """Run the app on the task hub in a folder, once in a process.

    Args:
        folder: Where the task hub is kept.
        places: Are put into the app.
        twice: Whether everything that a host may do twice is done twice: activities, events and signals.
        faults: Called at each point of the task hub.
    """
    catalogue = load_app(ROOT)
    places.watch()
    if twice:
        _post_twice()
    inputs = BindingInputs()
    runner = Runner(SystemClock(), None)
    invoker = Invoker(catalogue, runner, inputs, places=places, twice=twice)
    hub = Hub(folder / "hub.db", invoker, SystemClock(), SETTINGS, faults)
    await hub.start()
    clients = DurableClients(DurableUrls("http://127.0.0.1", "small"), hub.grpc_address)
    inputs.serve_clients(clients.datum())
    try:
        yield SmallApp(hub, TaskHub(clients.datum().value), places, invoker.activities)
    finally:
        await hub.stop()


def _post_twice() -> None:
    """Let the task hub deliver the events and signals of orchestrations twice."""
    readers = hub_turn._READERS
    for kind in ("sendEvent", "sendEntityMessage"):
        readers[kind] = _twice(readers[kind])


def _twice(read: Any) -> Any:
    def read_twice(interpreter: Any, action: Any) -> None:
        read(interpreter, action)
        if not action.sendEntityMessage.HasField("entityOperationCalled"):
            interpreter._turn.posts.append(interpreter._turn.posts[-1])

    return read_twice
