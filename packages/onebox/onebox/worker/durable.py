"""What the task hub asks of the app, run on the worker, and what durable clients are given.

The hub asks for orchestrators, entities and activities; a `durableClient` binding carries the URLs of the
management API and the address of the hub.
"""

import base64
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import durabletask.internal.orchestrator_service_pb2 as pb
from azure.durable_functions.internal.payloads import get_payload_store
from azure.durable_functions.worker import DurableFunctionsWorker

from onebox.faults import HostFaults, HostPoint, no_faults
from onebox.hub.invoker import InvocationFailedError, TurnRequest
from onebox.worker.executors import Orchestrators
from onebox.worker.functions import (
    ACTIVITY_TRIGGER,
    DURABLE_CLIENT,
    ENTITY_TRIGGER,
    ORCHESTRATION_TRIGGER,
    Binding,
    Catalogue,
    Function,
)
from onebox.worker.runner import FunctionFailedError, Result, Runner, json_datum, text_datum

WEBHOOK_PATH = "/runtime/webhooks/durabletask"
INSTANCE_PLACEHOLDER = "INSTANCEID"  # what the SDK replaces in the templates


@dataclass(frozen=True)
class DurableUrls:
    """Builds URLs for one task hub.

    Attributes:
        base_url: Where we serve HTTP, like `http://127.0.0.1:7071`.
        hub_name: The task hub's name.
        code: The system key that the API requires; None when it is open.
    """

    base_url: str
    hub_name: str
    code: str | None = None

    @property
    def webhook(self) -> str:
        """What all URLs begin with."""
        return self.base_url + WEBHOOK_PATH

    @property
    def query(self) -> str:
        """The parameters that every URL carries."""
        parameters = {"taskHub": self.hub_name, "connection": "Storage"}
        if self.code is not None:
            parameters["code"] = self.code
        return "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())

    def creation(self) -> Mapping[str, str]:
        """Return the templates for starting an orchestration."""
        create = f"{self.webhook}/orchestrators/{{functionName}}[/{{instanceId}}]?{self.query}"
        wait = f"{create}&timeout={{timeoutInSeconds}}&pollingInterval={{intervalInSeconds}}"
        return {"createNewInstancePostUri": create, "createAndWaitOnNewInstancePostUri": wait}

    def management(self, instance_id: str = INSTANCE_PLACEHOLDER) -> Mapping[str, str]:
        """Return the URLs for one instance; without an id, the templates for any."""
        instance = f"{self.webhook}/instances/{quote(instance_id, safe='')}"
        with_reason = {
            f"{action}PostUri": f"{instance}/{action}?reason={{text}}&{self.query}"
            for action in ("terminate", "rewind", "suspend", "resume")
        }
        return {
            "id": instance_id,
            "statusQueryGetUri": f"{instance}?{self.query}",
            "sendEventPostUri": f"{instance}/raiseEvent/{{eventName}}?{self.query}",
            "purgeHistoryDeleteUri": f"{instance}?{self.query}",
            "restartPostUri": f"{instance}/restart?{self.query}",
            **with_reason,
        }


@dataclass(frozen=True)
class DurableClients:
    """What a `durableClient` binding carries into a function.

    Attributes:
        urls: The URLs of the management API, and the task hub's name; a binding may name another hub, which
            onebox does not have.
        rpc_address: The hub's gRPC service, `host:port`.
        max_message_bytes: Largest gRPC message; 0 leaves it to the SDK.
        starts_are_atomic: Whether one transaction looks for an instance and creates it.
    """

    urls: DurableUrls
    rpc_address: str
    max_message_bytes: int = 0
    starts_are_atomic: bool = True

    def datum(self) -> Any:
        """Return the binding's data as the Durable extension writes it."""
        content = {
            "taskHubName": self.urls.hub_name,
            "connectionName": "Storage",
            "creationUrls": self.urls.creation(),
            "managementUrls": self.urls.management(),
            "baseUrl": self.urls.webhook,
            "httpBaseUrl": self.urls.webhook,
            "requiredQueryStringParameters": self.urls.query,
            "rpcBaseUrl": self.rpc_address,
            "useForwardedHost": False,
            "maxGrpcMessageSizeInBytes": self.max_message_bytes,
            "grpcHttpClientTimeout": "00:01:40",
            # Beside what the extension writes.
            "startsAreAtomic": self.starts_are_atomic,
        }
        return text_datum(json.dumps(content))


_MOST_LEVELS: Final = 64
"""The depth of JSON that an activity takes or returns: `MaxDepth` of Newtonsoft.Json, which the host uses."""

_BRACES: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def _require_readable(text: str) -> None:
    """Refuse JSON that nests deeper than the host reads.

    Raises:
        InvocationFailedError: It does; the orchestration sees an activity that failed.
    """
    if text.count("{") + text.count("[") <= _MOST_LEVELS:
        return
    levels = 0
    for found in _BRACES.finditer(text):
        levels += (found[0] in "[{") - (found[0] in "]}")
        if levels > _MOST_LEVELS:
            detail = f"The reader's MaxDepth of {_MOST_LEVELS} has been exceeded."
            raise InvocationFailedError("Newtonsoft.Json.JsonReaderException", detail)


class HistoryNeededError(Exception):
    """The turn has to be replayed, and the request misses the beginning of the history."""


class BindingInputs:
    """Fills the input bindings that a function has beside its trigger."""

    def __init__(self) -> None:
        self._client: Any = None

    def serve_clients(self, clients: Any) -> None:
        """Hand in what `durableClient` bindings carry (`DurableClients.datum`), once the ports are known."""
        self._client = clients

    def of(self, function: Function) -> list[tuple[str, Any]]:
        """Return a Datum per input binding, apart from the trigger's."""
        return [(each.name, self._value(each)) for each in function.inputs]

    def _value(self, binding: Binding) -> Any:
        if binding.type == DURABLE_CLIENT:
            return self._client
        # What the host sends for something that is not there; the catalogue check warned at start.
        return None


class DurableInvoker:
    """Runs durable functions for the hub.

    Orchestrators and entities run through the SDK at once, on the hub's event loop. Those that took long
    lately would hold up all others there: they run through the runtime as in the host, base64 protobuf in and
    out, on the worker's threads. So do all of an app that keeps large payloads elsewhere.
    """

    def __init__(
        self, catalogue: Catalogue, runner: Runner, inputs: BindingInputs, faults: HostFaults = no_faults
    ) -> None:
        self._orchestrators = {
            each.durable_name: each for each in catalogue.with_trigger(ORCHESTRATION_TRIGGER)
        }
        self._entities = {each.durable_name.lower(): each for each in catalogue.with_trigger(ENTITY_TRIGGER)}
        self._activities = {each.durable_name: each for each in catalogue.with_trigger(ACTIVITY_TRIGGER)}
        self._runner = runner
        self._inputs = inputs
        self._faults = faults
        self._executors = Orchestrators()
        self._entity_worker = DurableFunctionsWorker()

    @property
    def orchestrators(self) -> Collection[str]:
        """Names of the app's orchestrators."""
        return self._orchestrators.keys()

    @property
    def entities(self) -> Collection[str]:
        """Names of the app's entities, lower case."""
        return self._entities.keys()

    @property
    def activities(self) -> Collection[str]:
        """Names of the app's activities."""
        return self._activities.keys()

    def is_immediate(self, name: str, *, is_entity: bool) -> bool:
        """Whether it runs at once; see `Invoker.is_immediate`."""
        function = self._entities.get(name.lower()) if is_entity else self._orchestrators.get(name)
        return function is None or self._code_to_run_here(function) is not None

    async def orchestrator(self, name: str, request: TurnRequest) -> pb.OrchestratorResponse:
        """Run one turn; see `Invoker.orchestrator`.

        Raises:
            HistoryNeededError: It must see the whole history.
        """
        function = _find(self._orchestrators, name)
        code = self._code_to_run_here(function)
        if code is not None:
            answer = self._run_here(function, lambda: self._executors.turn(name, code, request))
            if answer is None:
                raise HistoryNeededError
            return answer
        if request.missing:
            raise HistoryNeededError
        self._executors.forget(request.instance_id)  # the runtime replays: this may be its last turn
        trigger = text_datum(base64.b64encode(request.serialized()).decode("ascii"))
        self._runner.note_elsewhere(function)
        result = await self._run(function, trigger, reason="")
        response: pb.OrchestratorResponse = pb.OrchestratorResponse.FromString(
            base64.b64decode(result.returned.value)
        )
        return response

    async def entity(self, name: str, request: pb.EntityBatchRequest) -> pb.EntityBatchResult:
        """Run a batch of operations; see `Invoker.entity`."""
        function = _find(self._entities, name.lower())
        code = self._code_to_run_here(function)
        if code is not None:
            return self._run_here(function, lambda: self._entity_worker._run_entity_batch(code, request))  # noqa: SLF001 - as the SDK's own handle does
        trigger = text_datum(base64.b64encode(request.SerializeToString()).decode("ascii"))
        self._runner.note_elsewhere(function)
        result = await self._run(function, trigger, reason="")
        answer: pb.EntityBatchResult = pb.EntityBatchResult.FromString(
            base64.b64decode(result.returned.value)
        )
        return answer

    async def activity(self, name: str, instance_id: str, task_id: int, input_json: str | None) -> str | None:
        """Run an activity; see `Invoker.activity`.

        As under the host, its input and its answer nest 64 levels at most.
        """
        given = "null" if input_json is None else input_json
        _require_readable(given)
        datum = json_datum(given)
        result = await self._run(_find(self._activities, name), datum, reason=f"{instance_id}#{task_id}")
        self._faults(HostPoint.ACTIVITY_RUN)
        if result.returned is None or result.returned.value is None:
            return None
        answer = str(result.returned.value)
        _require_readable(answer)
        return answer

    def _code_to_run_here(self, function: Function) -> Callable[..., Any] | None:
        """Return an orchestrator or entity to be run on this thread; None for one that is not."""
        return (
            function.durable_code if get_payload_store() is None and self._runner.is_quick(function) else None
        )

    def _run_here[T](self, function: Function, call: Callable[[], T]) -> T:
        try:
            return self._runner.run_here(function, call)
        except FunctionFailedError as error:
            raise _failed(error) from None

    async def _run(self, function: Function, trigger: Any, *, reason: str) -> Result:
        inputs = [(function.trigger.name, trigger), *self._inputs.of(function)]
        try:
            return await self._runner.run(function, inputs, reason=reason)
        except FunctionFailedError as error:
            raise _failed(error) from None


def _find(among: Mapping[str, Function], name: str) -> Function:
    function = among.get(name)
    if function is None:
        raise InvocationFailedError("FunctionNotFound", f"the app has no function named {name!r}")
    return function


def _failed(error: FunctionFailedError) -> InvocationFailedError:
    failure = error.failure
    return InvocationFailedError(failure.error_type, failure.message, failure.stack_trace)
