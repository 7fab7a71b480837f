"""An app of plain SDK functions, and the invoker that runs it in this process as the Functions host would."""

import asyncio
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from azure.durable_functions.worker import DurableFunctionsWorker

from onebox.hub import InvocationFailed


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
    """Runs an app's functions through the SDK's own worker."""

    def __init__(self, app: App) -> None:
        self._app = app
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

    async def orchestrator(self, name: str, request: str) -> str:
        self.turns += 1
        function = self._app.orchestrators_by_name[name]
        answer: str = self._worker(name).execute_orchestration_request(function, Body(request))
        return answer

    async def entity(self, name: str, request: str) -> str:
        function = self._app.entities_by_name[name]
        answer: str = self._worker("@" + name).execute_entity_batch_request(function, Body(request))
        return answer

    async def activity(self, name: str, instance_id: str, task_id: int, input_json: str | None) -> str | None:
        self.activities_run.append(f"{instance_id}/{name}/{task_id}")
        function = self._app.activities_by_name[name]
        try:
            result = function(None if input_json is None else json.loads(input_json))
            if asyncio.iscoroutine(result):
                result = await result
        except Exception as error:
            raise InvocationFailed(type(error).__name__, str(error), "trace") from error
        return None if result is None else json.dumps(result)

    def _worker(self, key: str) -> DurableFunctionsWorker:
        if key not in self._workers:
            self._workers[key] = DurableFunctionsWorker()
        return self._workers[key]
