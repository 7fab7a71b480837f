"""What the task hub asks of whoever runs the app's functions."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import durabletask.internal.orchestrator_service_pb2 as pb

from onebox.hub.events import request_bytes


class InvocationFailedError(Exception):
    """A function was run and ended with an error of its own.

    From an activity it becomes the task's failure details. From an orchestrator or an entity it means that
    the SDK produced no answer at all (the function could not be loaded, say): the orchestration fails with
    it, and a batch is answered as one whose worker died. Any *other* exception but `InvocationLostError` says
    that the invocation itself did not happen (the worker is stopping): the work item is given back and tried
    again.
    """

    def __init__(self, error_type: str, message: str, stack_trace: str | None = None) -> None:
        super().__init__(f"{error_type}: {message}")
        self.error_type = error_type
        self.message = message
        self.stack_trace = stack_trace


class InvocationLostError(Exception):
    """Whoever ran an invocation is gone, and nobody knows how far it came.

    As on Azure, a turn is tried again, an activity has failed, and of a batch the calls have failed and the
    signals are gone.
    """


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One turn of an orchestrator.

    Attributes:
        past: What it has seen: framed events (see `events`), one chunk per committed turn.
        new: What it is to see: framed events, the opening of the turn first.
        missing: How many chunks of the past are left out at its beginning; such a request cannot be replayed.
    """

    instance_id: str
    execution_id: str
    past: Sequence[bytes]
    new: Sequence[bytes]
    missing: int = 0

    def serialized(self) -> bytes:
        """Return it as a serialised `OrchestratorRequest`."""
        return request_bytes(self.instance_id, self.execution_id, self.past, self.new)


class Invoker(Protocol):
    """Runs orchestrators, entities and activities as the Functions host does."""

    @property
    def orchestrators(self) -> Collection[str]:
        """Names of the orchestrators it can run, as registered."""
        ...

    @property
    def entities(self) -> Collection[str]:
        """Names of the entities it can run; compared without regard to case."""
        ...

    @property
    def activities(self) -> Collection[str]:
        """Names of the activities it can run, as registered."""
        ...

    def is_immediate(self, name: str, *, is_entity: bool) -> bool:
        """Whether an orchestrator, or an entity, now answers without being waited for."""
        ...

    async def orchestrator(self, name: str, request: TurnRequest) -> pb.OrchestratorResponse:
        """Run one turn of an orchestrator.

        Args:
            name: Registered name.
            request: What has happened.

        Returns:
            The SDK's answer.

        Raises:
            InvocationFailedError: The function ended without an answer.
        """
        ...

    async def entity(self, name: str, request: pb.EntityBatchRequest) -> pb.EntityBatchResult:
        """Run a batch of operations on one entity.

        Args:
            name: Registered name, lower case as in the entity's id.
            request: The entity's state and the operations.

        Returns:
            The SDK's answer.

        Raises:
            InvocationFailedError: The function ended without an answer.
        """
        ...

    async def activity(self, name: str, instance_id: str, task_id: int, input_json: str | None) -> str | None:
        """Run an activity once.

        Args:
            name: Registered name.
            instance_id: The orchestration that asked for it.
            task_id: Its number within that orchestration.
            input_json: JSON text; None when the orchestrator gave no input.

        Returns:
            JSON text; None when the function returned nothing.

        Raises:
            InvocationFailedError: The function raised.
        """
        ...
