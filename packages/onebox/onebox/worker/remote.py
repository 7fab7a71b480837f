"""The host's runner, invoker and streams when worker processes run the functions."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
import grpc
from starlette.types import Scope

from onebox.faults import HostFaults, HostPoint, no_faults
from onebox.hub.invoker import InvocationFailedError, TurnRequest
from onebox.hub.local_channel import call_serialized
from onebox.worker import wire
from onebox.worker.durable import BindingInputs
from onebox.worker.functions import (
    ACTIVITY_TRIGGER,
    ENTITY_TRIGGER,
    ORCHESTRATION_TRIGGER,
    Catalogue,
    Function,
)
from onebox.worker.link import Handler, RefusedError, WorkerLostError
from onebox.worker.processes import WorkerProcesses
from onebox.worker.runner import Failure, FunctionFailedError, Input, Result, Retry, Trace
from onebox.worker.streams import Channel

_LOG = logging.getLogger("onebox.functions")


class NoInputs(BindingInputs):
    """Leaves input bindings to the worker processes."""

    def of(self, _function: Function) -> list[tuple[str, Any]]:
        """Return nothing."""
        return []


class RemoteRunner:
    """Runs functions in worker processes; those log how each run ended."""

    def __init__(self, processes: WorkerProcesses) -> None:
        self._processes = processes

    async def run(
        self,
        function: Function,
        inputs: Sequence[Input],
        metadata: Mapping[str, Any] | None = None,
        *,
        reason: str = "",
        retry: Retry | None = None,
        invocation_id: str | None = None,
        trace: Trace | None = None,
    ) -> Result:
        """Run a function once; see `Runner.run`. A process that ends meanwhile fails it, as in the host."""
        value = wire.pack_run(
            function,
            inputs,
            metadata or {},
            reason=reason,
            retry=retry,
            invocation_id=invocation_id,
            trace=trace,
        )
        try:
            return wire.unpack_result(await self._processes.call(wire.RUN, value, key=invocation_id))
        except WorkerLostError as lost:
            raise FunctionFailedError(Failure(type(lost).__name__, str(lost), str(lost))) from None
        except RefusedError as refused:
            raise FunctionFailedError(_failure(refused)) from None


class RemoteStreams:
    """The web application of streaming functions in worker processes, one piece of a body per call."""

    def __init__(self, processes: WorkerProcesses) -> None:
        self._processes = processes
        self._channels: dict[str, Channel] = {}
        processes.handlers |= {
            wire.ARRIVED: self._arrived,
            wire.RECEIVE: self._receive,
            wire.SEND: self._send,
        }

    async def serve(self, invocation_id: str, what: str, scope: Scope, channel: Channel) -> None:
        """Answer a request; see `Streams.serve`. A process that ends meanwhile cuts the answer off."""
        self._channels[invocation_id] = channel
        try:
            async with self._processes.one(invocation_id) as link:
                await link.call(wire.STREAM, (invocation_id, what, wire.pack_scope(scope)))
        except (WorkerLostError, RefusedError) as error:
            _LOG.error("%s: its response broke off: %s", what, error)
        finally:
            del self._channels[invocation_id]

    def fail(self, invocation_id: str, error: FunctionFailedError) -> None:
        """Do nothing: the worker process has."""

    async def _arrived(self, invocation_id: str) -> None:
        await self._channels[invocation_id].arrived()

    async def _receive(self, invocation_id: str) -> Any:
        return wire.pack(await self._channels[invocation_id].receive())

    async def _send(self, value: Any) -> None:
        invocation_id, piece = value
        await self._channels[invocation_id].send(wire.unpack(piece))


class RemoteInvoker:
    """Runs durable functions in worker processes; an instance stays with one process as long as that runs.

    When the process ends meanwhile, `WorkerLostError` is raised.
    """

    def __init__(
        self, catalogue: Catalogue, processes: WorkerProcesses, faults: HostFaults = no_faults
    ) -> None:
        self._processes = processes
        self._faults = faults
        self.orchestrators: Collection[str] = _names(catalogue, ORCHESTRATION_TRIGGER)
        self.entities: Collection[str] = {name.lower() for name in _names(catalogue, ENTITY_TRIGGER)}
        self.activities: Collection[str] = _names(catalogue, ACTIVITY_TRIGGER)

    def is_immediate(self, _name: str, *, is_entity: bool) -> bool:  # noqa: ARG002 - the protocol's
        """Whether it runs at once: never."""
        return False

    async def orchestrator(self, name: str, request: TurnRequest) -> pb.OrchestratorResponse:
        """Run one turn; see `Invoker.orchestrator`."""
        try:
            answer = await self._turn(name, wire.shortened(request))
        except RefusedError as refused:
            if refused.name != wire.HISTORY_NEEDED:
                raise _invocation_failed(refused) from None
            answer = await self._turn(name, request)
        response: pb.OrchestratorResponse = pb.OrchestratorResponse.FromString(answer)
        return response

    async def _turn(self, name: str, request: TurnRequest) -> Any:
        value = wire.pack_turn(name, request)
        return await self._processes.call(wire.TURN, value, key=request.instance_id)

    async def entity(self, name: str, request: pb.EntityBatchRequest) -> pb.EntityBatchResult:
        """Run a batch of operations; see `Invoker.entity`."""
        value = name, request.SerializeToString()
        try:
            answer = await self._processes.call(wire.BATCH, value, key=request.instanceId)
        except RefusedError as refused:
            raise _invocation_failed(refused) from None
        result: pb.EntityBatchResult = pb.EntityBatchResult.FromString(answer)
        return result

    async def activity(self, name: str, instance_id: str, task_id: int, input_json: str | None) -> str | None:
        """Run an activity; see `Invoker.activity`."""
        value = name, instance_id, task_id, input_json
        try:
            answer: str | None = await self._processes.call(wire.ACTIVITY, value)
        except RefusedError as refused:
            raise _invocation_failed(refused) from None
        self._faults(HostPoint.ACTIVITY_RUN)
        return answer


def _names(catalogue: Catalogue, trigger_type: str) -> set[str]:
    return {each.durable_name for each in catalogue.with_trigger(trigger_type)}


def _failure(refused: RefusedError) -> Failure:
    if refused.name == wire.FAILED:
        return Failure(*refused.details)
    text = str(refused.details)
    _LOG.error("a worker process could not answer: %s", text)
    return Failure("WorkerError", text, text)


def _invocation_failed(refused: RefusedError) -> InvocationFailedError:
    failure = _failure(refused)
    return InvocationFailedError(failure.error_type, failure.message, failure.stack_trace)


def client_calls(address: str) -> Handler:
    """Return the handler for calls of durable clients in worker processes.

    Args:
        address: The address of the hub, which this process serves.
    """

    async def answer(value: Any) -> list[bytes]:
        name, request = value
        try:
            return await call_serialized(address, name, request)
        except grpc.aio.AioRpcError as error:
            raise RefusedError(wire.STATUS, [error.code().name, error.details()]) from None

    return answer
