"""Counts and times what a host runs for an app."""

import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from durabletask.internal.orchestrator_service_pb2 import (
    EntityBatchRequest,
    EntityBatchResult,
    OrchestratorResponse,
)

from onebox.hub.invoker import Invoker, TurnRequest

SHORTEST_BILLED_SECONDS = 0.1
"""The Consumption plan bills each execution at least 100 ms (Azure Functions pricing)."""


@dataclass(slots=True)
class Meter:
    """What was run.

    Attributes:
        turns: Orchestrator turns.
        activities: Activity executions.
        entity_batches: Entity invocations.
        entity_operations: Operations in those, at least one each.
        by_operation: The same, per `entity.operation`.
        execution_seconds: How long each invocation of any kind took.
    """

    turns: int = 0
    activities: int = 0
    entity_batches: int = 0
    entity_operations: int = 0
    by_operation: Counter[str] = field(default_factory=Counter)
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


class MeteredInvoker:
    """Passes every invocation on and counts it."""

    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker
        self.meter = Meter()

    @property
    def orchestrators(self) -> Collection[str]:
        """As the invoker's."""
        return self._invoker.orchestrators

    @property
    def entities(self) -> Collection[str]:
        """As the invoker's."""
        return self._invoker.entities

    @property
    def activities(self) -> Collection[str]:
        """As the invoker's."""
        return self._invoker.activities

    def is_immediate(self, name: str, *, is_entity: bool) -> bool:
        """As the invoker's."""
        return self._invoker.is_immediate(name, is_entity=is_entity)

    async def orchestrator(self, name: str, request: TurnRequest) -> OrchestratorResponse:
        """Runs and counts a turn."""
        self.meter.turns += 1
        with self.meter.timing():
            return await self._invoker.orchestrator(name, request)

    async def entity(self, name: str, request: EntityBatchRequest) -> EntityBatchResult:
        """Runs and counts a batch of entity operations."""
        self.meter.entity_batches += 1
        self.meter.entity_operations += len(request.operations)
        self.meter.by_operation.update(f"{name}.{each.operation}" for each in request.operations)
        with self.meter.timing():
            return await self._invoker.entity(name, request)

    async def activity(self, name: str, instance_id: str, task_id: int, input_json: str | None) -> str | None:
        """Runs and counts an activity."""
        self.meter.activities += 1
        with self.meter.timing():
            return await self._invoker.activity(name, instance_id, task_id, input_json)
