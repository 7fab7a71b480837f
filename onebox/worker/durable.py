"""What the task hub asks of the app: its orchestrators, entities and activities, run on the worker."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from onebox.durable_urls import DurableUrls
from onebox.faults import HostFaults, HostPoint, no_faults
from onebox.hub.invoker import InvocationFailed
from onebox.worker.failures import FunctionFailedError
from onebox.worker.functions import (
    ACTIVITY_TRIGGER,
    DURABLE_CLIENT,
    ENTITY_TRIGGER,
    ORCHESTRATION_TRIGGER,
    Binding,
    Catalogue,
    Function,
)
from onebox.worker.runner import Result, Runner, json_datum, text_datum


@dataclass(frozen=True)
class DurableClients:
    """What a `durableClient` binding carries into a function.

    Attributes:
        urls: Of the management API, and the task hub's name; a binding may name another hub, which onebox
            does not have.
        rpc_address: The hub's gRPC service, `host:port`.
        max_message_bytes: Largest gRPC message; 0 leaves it to the SDK.
    """

    urls: DurableUrls
    rpc_address: str
    max_message_bytes: int = 0

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
        }
        return text_datum(json.dumps(content))


class BindingInputs:
    """Fills the input bindings that a function has beside its trigger."""

    def __init__(self) -> None:
        self._client: Any = None

    def serve_clients(self, clients: DurableClients) -> None:
        """Hand in what `durableClient` bindings carry, known once the hub and the server have their ports."""
        self._client = clients.datum()

    def of(self, function: Function) -> list[tuple[str, Any]]:
        """Return a Datum per input binding, apart from the trigger's."""
        return [(each.name, self._value(each)) for each in function.inputs()]

    def _value(self, binding: Binding) -> Any:
        if binding.type == DURABLE_CLIENT:
            return self._client
        # What the host sends for something that is not there; the catalogue check warned at start.
        return None


class DurableInvoker:
    """Runs durable functions for the hub, as the Durable extension does: base64 protobuf in and out."""

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

    async def orchestrator(self, name: str, request: str) -> str:
        """Run one turn; see `Invoker.orchestrator`."""
        result = await self._run(self._orchestrators, name, text_datum(request), reason="")
        return str(result.returned.value)

    async def entity(self, name: str, request: str) -> str:
        """Run a batch of operations; see `Invoker.entity`."""
        result = await self._run(self._entities, name.lower(), text_datum(request), reason="")
        return str(result.returned.value)

    async def activity(self, name: str, instance_id: str, task_id: int, input_json: str | None) -> str | None:
        """Run an activity; see `Invoker.activity`."""
        datum = json_datum("null" if input_json is None else input_json)
        result = await self._run(self._activities, name, datum, reason=f"{instance_id}#{task_id}")
        self._faults(HostPoint.ACTIVITY_RUN)
        return (
            None if result.returned is None or result.returned.value is None else str(result.returned.value)
        )

    async def _run(self, among: Mapping[str, Function], name: str, trigger: Any, *, reason: str) -> Result:
        function = among.get(name)
        if function is None:
            raise InvocationFailed("FunctionNotFound", f"the app has no function named {name!r}")
        inputs = [(function.trigger.name, trigger), *self._inputs.of(function)]
        try:
            return await self._runner.run(function, inputs, reason=reason)
        except FunctionFailedError as error:
            failure = error.failure
            raise InvocationFailed(failure.error_type, failure.message, failure.stack_trace) from None
