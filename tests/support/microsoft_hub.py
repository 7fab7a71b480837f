"""An app behind the Functions host's invocation contract, on a task hub that is not ours.

Usage: python -m tests.support.microsoft_hub APP DATA PORT

The hub is Microsoft's in-memory backend, without onebox's terms and without its ways around the contract:
every turn and every batch goes base64 protobuf in and out through the runtime, nothing is kept in between.
onebox serves HTTP, queues and timers. The calls of the management API that the tests make are answered here.
"""

import asyncio
import base64
import json
import logging
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
import durabletask.internal.orchestrator_service_pb2_grpc as stubs
import grpc
import grpc.aio
from durabletask.client import OrchestrationState, TaskHubGrpcClient
from durabletask.entities import EntityInstanceId
from durabletask.testing.in_memory_backend import InMemoryOrchestrationBackend
from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onebox.composition import Components
from onebox.host import Host, Options
from onebox.logs import set_up_logs
from onebox.worker.durable import WEBHOOK_PATH
from onebox.worker.functions import ACTIVITY_TRIGGER, ENTITY_TRIGGER, ORCHESTRATION_TRIGGER, Function
from onebox.worker.runner import FunctionFailedError, json_datum, text_datum

_LOG = logging.getLogger("microsoft_hub")
_CALLS_AT_ONCE = 64


class OnMicrosoftsHub(Components):
    """The components of an app, with Microsoft's in-memory backend in place of onebox's task hub."""

    async def start_hub(self, base_url: str) -> None:
        """Start the backend, and run what it hands out."""
        self._backend = InMemoryOrchestrationBackend()
        # `create_test_backend` would listen on every address, and each client that waits takes a thread.
        self._server = grpc.server(ThreadPoolExecutor(_CALLS_AT_ONCE))
        stubs.add_TaskHubSidecarServiceServicer_to_server(self._backend, self._server)  # type: ignore[no-untyped-call] # generated without types
        address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()
        self._channel = grpc.aio.insecure_channel(address)
        self._sidecar: Any = stubs.TaskHubSidecarServiceStub(self._channel)  # type: ignore[no-untyped-call] # as above
        self._under_way: set[asyncio.Task[None]] = set()
        self._orchestrators = self._named(ORCHESTRATION_TRIGGER)
        self._activities = self._named(ACTIVITY_TRIGGER)
        self._entities = {name.lower(): function for name, function in self._named(ENTITY_TRIGGER).items()}
        self.inputs.serve_clients(self.clients(base_url, address).datum())
        self.application.webhooks[WEBHOOK_PATH] = Management(address).answer
        self._fetching = asyncio.create_task(self._fetch())

    async def stop_hub(self) -> None:
        """Stop the backend; what it holds is gone."""
        self._fetching.cancel()
        await self._channel.close()
        self._backend.stop()
        await asyncio.to_thread(self._server.stop(None).wait)

    def _named(self, trigger: str) -> dict[str, Function]:
        return {function.durable_name: function for function in self.catalogue.with_trigger(trigger)}

    async def _fetch(self) -> None:
        async for item in self._sidecar.GetWorkItems(pb.GetWorkItemsRequest()):
            running = asyncio.create_task(self._run(item))
            self._under_way.add(running)
            running.add_done_callback(self._under_way.discard)

    async def _run(self, item: pb.WorkItem) -> None:
        match item.WhichOneof("request"):
            case "orchestratorRequest":
                await self._turn(item)
            case "activityRequest":
                await self._activity(item)
            case "entityRequestV2":
                await self._batch(item)

    async def _turn(self, item: pb.WorkItem) -> None:
        request = item.orchestratorRequest
        events = [*request.pastEvents, *request.newEvents]
        name = next(event.executionStarted.name for event in events if event.HasField("executionStarted"))
        try:
            returned = await self._invoke(self._orchestrators[name], text_datum(_text(request)))
        except FunctionFailedError:
            # The platform repeats such a turn.
            _LOG.exception("a turn of %s failed", name)
            abandon = pb.AbandonOrchestrationTaskRequest(completionToken=item.completionToken)
            await self._sidecar.AbandonTaskOrchestratorWorkItem(abandon)
            return
        response = pb.OrchestratorResponse.FromString(base64.b64decode(returned))
        response.completionToken = item.completionToken
        await self._sidecar.CompleteOrchestratorTask(response)

    async def _activity(self, item: pb.WorkItem) -> None:
        request = item.activityRequest
        response = pb.ActivityResponse(
            instanceId=request.orchestrationInstance.instanceId,
            taskId=request.taskId,
            completionToken=item.completionToken,
        )
        try:
            returned = await self._invoke(self._activities[request.name], json_datum(request.input.value))
            response.result.value = "null" if returned is None else returned
        except FunctionFailedError as error:
            # The extension gets the worker's error as an exception of its own.
            response.failureDetails.errorType = "RpcException"
            response.failureDetails.errorMessage = str(error)
        await self._sidecar.CompleteActivityTask(response)

    async def _batch(self, item: pb.WorkItem) -> None:
        request, infos = _as_the_host_sends_it(item.entityRequestV2)
        name = request.instanceId.split("@")[1]
        try:
            returned = await self._invoke(self._entities[name.lower()], text_datum(_text(request)))
        except FunctionFailedError:
            # The SDK answers for an operation that raises: this is the SDK's own failure.
            _LOG.exception("a batch of %s failed", name)
            abandon = pb.AbandonEntityTaskRequest(completionToken=item.completionToken)
            await self._sidecar.AbandonTaskEntityWorkItem(abandon)
            return
        result = pb.EntityBatchResult.FromString(base64.b64decode(returned))
        result.completionToken = item.completionToken
        result.operationInfos.extend(infos)
        await self._sidecar.CompleteEntityTask(result)

    async def _invoke(self, function: Function, trigger: Any) -> Any:
        """Run a function; return the value that it returned, None for nothing."""
        inputs = [(function.trigger.name, trigger), *self.inputs.of(function)]
        result = await self.runner.run(function, inputs)
        return None if result.returned is None else result.returned.value


def _text(request: Message) -> str:
    return base64.b64encode(request.SerializeToString()).decode("ascii")


def _as_the_host_sends_it(
    request: pb.EntityRequest,
) -> tuple[pb.EntityBatchRequest, list[pb.OperationInfo]]:
    """Return a batch of history events as one of operations, and where each answer goes."""
    batch = pb.EntityBatchRequest(instanceId=request.instanceId, entityState=request.entityState)
    infos = []
    for event in request.operationRequests:
        is_call = event.HasField("entityOperationCalled")
        message: Any = event.entityOperationCalled if is_call else event.entityOperationSignaled
        info = pb.OperationInfo(requestId=message.requestId)
        if is_call:
            info.responseDestination.instanceId = message.parentInstanceId.value
            info.responseDestination.executionId.value = message.parentExecutionId.value
        infos.append(info)
        batch.operations.append(
            pb.OperationRequest(operation=message.operation, requestId=message.requestId, input=message.input)
        )
    return batch, infos


class Management:
    """The calls of the management API that the tests make."""

    def __init__(self, address: str) -> None:
        self._client = TaskHubGrpcClient(host_address=address)

    async def answer(self, request: Request) -> Response:
        """Answer one call; 501 for what no test uses."""
        parts = request.url.path.removeprefix(f"{WEBHOOK_PATH}/").split("/")
        given = {"body": (await request.body()).decode(), "reason": request.query_params.get("reason")}
        calls: dict[tuple[str, str, int], Callable[..., Response]] = {
            ("GET", "instances", 2): self._status,
            ("GET", "entities", 3): self._entity,
            ("DELETE", "instances", 2): self._purge,
            ("POST", "instances", 3): self._terminate,
            ("POST", "instances", 4): self._raise_event,
            ("POST", "orchestrators", 3): self._start,
        }
        call = calls.get((request.method, parts[0], len(parts)))
        if call is None:
            return Response(status_code=501)
        return await asyncio.to_thread(call, *parts[1:], **given)

    def _status(self, instance_id: str, **_: str | None) -> Response:
        state = self._client.get_orchestration_state(instance_id)
        return Response(status_code=404) if state is None else JSONResponse(_document(state))

    def _entity(self, name: str, entity_key: str, **_: str | None) -> Response:
        entity = self._client.get_entity(EntityInstanceId(name, entity_key))
        state: str | None = None if entity is None else entity.get_state()
        return JSONResponse(json.loads(state)) if state else Response(status_code=404)

    def _purge(self, instance_id: str, **_: str | None) -> Response:
        purged = self._client.purge_orchestration(instance_id).deleted_instance_count
        return JSONResponse({"instancesDeleted": purged}, 200 if purged else 404)

    def _terminate(self, instance_id: str, action: str, *, reason: str | None, **_: str | None) -> Response:
        if action != "terminate":
            return Response(status_code=501)
        self._client.terminate_orchestration(instance_id, output=reason)
        return Response(status_code=202)

    def _raise_event(
        self, instance_id: str, action: str, event: str, *, body: str, **_: str | None
    ) -> Response:
        if action != "raiseEvent":
            return Response(status_code=501)
        self._client.raise_orchestration_event(instance_id, event, data=json.loads(body))
        return Response(status_code=202)

    def _start(self, name: str, instance_id: str, *, body: str, **_: str | None) -> Response:
        self._client.schedule_new_orchestration(name, input=json.loads(body), instance_id=instance_id)
        return JSONResponse({"id": instance_id}, 202)


def _document(state: OrchestrationState) -> dict[str, Any]:
    given, output = state.serialized_input, state.serialized_output
    return {
        "instanceId": state.instance_id,
        "name": state.name,
        "runtimeStatus": state.runtime_status.name.title(),
        "input": given and json.loads(given),
        "output": output and json.loads(output),
    }


def main() -> None:
    """Serve an app until a signal, as `onebox start` does."""
    app, data, port = sys.argv[1:]
    set_up_logs(verbose=False)
    os.environ["FUNCTIONS_WORKER_PROCESS_COUNT"] = "0"  # the hub calls them in this process
    options = Options(app=Path(app).resolve(), host="127.0.0.1", port=int(port), data=Path(data).resolve())
    asyncio.run(Host(options, components=OnMicrosoftsHub).serve())


if __name__ == "__main__":
    main()
