"""An app of plain SDK functions, and the invoker that runs it in this process as the Functions host would."""

import asyncio
import base64
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
from azure.durable_functions.worker import DurableFunctionsWorker

from onebox.hub import InvocationFailedError
from onebox.hub.invoker import TurnRequest
from onebox.worker.durable import HistoryNeededError
from onebox.worker.executors import Orchestrators


def comparable(response: pb.OrchestratorResponse) -> pb.OrchestratorResponse:
    """Return an answer without what differs at each run, and the trace context, which the hub ignores."""
    copy = pb.OrchestratorResponse()
    copy.CopyFrom(response)
    copy.ClearField("orchestrationTraceContext")
    for action in copy.actions:
        for event in action.rewindOrchestration.newHistory:
            event.executionStarted.orchestrationInstance.executionId.Clear()
        action.completeOrchestration.failureDetails.stackTrace.Clear()
    return copy


def without_beginning(request: TurnRequest) -> TurnRequest:
    """Return a request as the host sends it to a worker process: with the end of the history alone."""
    past = request.past
    missing = max(len(past) - 1, 0)
    return TurnRequest(request.instance_id, request.execution_id, past[missing:], request.new, missing)


@dataclass(frozen=True)
class Body:
    """The trigger's context object, of which the SDK reads the body."""

    body: str


@dataclass
class App:
    """Functions by name."""

    orchestrators_by_name: dict[str, Callable[..., Any]] = field(default_factory=dict)
    entities_by_name: dict[str, Callable[..., Any]] = field(default_factory=dict)
    activities_by_name: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def include(self, part: "App") -> None:
        """Take over another app's functions."""
        self.orchestrators_by_name |= part.orchestrators_by_name
        self.entities_by_name |= part.entities_by_name
        self.activities_by_name |= part.activities_by_name

    def orchestrator[F: Callable[..., Any]](self, function: F) -> F:
        self.orchestrators_by_name[function.__name__] = function
        return function

    def entity[F: Callable[..., Any]](self, function: F) -> F:
        self.entities_by_name[function.__name__.lower()] = function
        return function

    def activity[F: Callable[..., Any]](self, function: F) -> F:
        self.activities_by_name[function.__name__] = function
        return function


class AppInvoker:
    """Runs an app's functions through the SDK's own worker.

    Each turn of an orchestrator runs twice: replayed by the SDK as in the host, and by onebox's executors,
    which go on wherever they can. Both must answer the same.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self.executors = Orchestrators(replayed_first=0, replayed_then=1_000_000)
        self._workers: dict[str, DurableFunctionsWorker] = {}
        self.turns = 0
        self.activities_run: list[str] = []

    @property
    def orchestrators(self) -> Collection[str]:
        return self._app.orchestrators_by_name.keys()

    @property
    def entities(self) -> Collection[str]:
        return self._app.entities_by_name.keys()

    @property
    def activities(self) -> Collection[str]:
        return self._app.activities_by_name.keys()

    def is_immediate(self, name: str, *, is_entity: bool) -> bool:  # noqa: ARG002 # no function here waits
        return True

    async def orchestrator(self, name: str, request: TurnRequest) -> pb.OrchestratorResponse:
        if request.missing:
            raise HistoryNeededError  # the SDK replays
        self.turns += 1
        function = self._app.orchestrators_by_name[name]
        body = Body(base64.b64encode(request.serialized()).decode())
        answer = self._worker(name).execute_orchestration_request(function, body)
        replayed = pb.OrchestratorResponse.FromString(base64.b64decode(answer))
        gone_on = self.executors.turn(name, function, without_beginning(request))
        if gone_on is None:  # as a worker process asks for the whole history
            gone_on = self.executors.turn(name, function, request)
        assert gone_on is not None
        assert comparable(gone_on) == comparable(replayed)
        return gone_on

    async def entity(self, name: str, request: pb.EntityBatchRequest) -> pb.EntityBatchResult:
        function = self._app.entities_by_name[name]
        return self._worker("@" + name)._run_entity_batch(function, request)

    async def activity(self, name: str, instance_id: str, task_id: int, input_json: str | None) -> str | None:
        self.activities_run.append(f"{instance_id}/{name}/{task_id}")
        function = self._app.activities_by_name[name]
        try:
            result = function(None if input_json is None else json.loads(input_json))
            if asyncio.iscoroutine(result):
                result = await result
        except Exception as error:
            raise InvocationFailedError(type(error).__name__, str(error), "trace") from error
        return None if result is None else json.dumps(result)

    def _worker(self, key: str) -> DurableFunctionsWorker:
        if key not in self._workers:
            self._workers[key] = DurableFunctionsWorker()
        return self._workers[key]


class WaitingInvoker(AppInvoker):
    """Runs orchestrators and entities that have to be waited for, as those in worker processes have."""

    def is_immediate(self, name: str, *, is_entity: bool) -> bool:  # noqa: ARG002 # all of them
        return False

    async def orchestrator(self, name: str, request: TurnRequest) -> pb.OrchestratorResponse:
        await asyncio.sleep(0)
        return await super().orchestrator(name, request)

    async def entity(self, name: str, request: pb.EntityBatchRequest) -> pb.EntityBatchResult:
        await asyncio.sleep(0)
        return await super().entity(name, request)
