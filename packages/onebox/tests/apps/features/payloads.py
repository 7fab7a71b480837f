"""Large payloads: kept in blobs, carried through every kind of message."""

import json
import os
from collections.abc import Generator
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from durabletask import task
from durabletask.entities import DurableEntity, EntityInstanceId
from durabletask.extensions.azure_blob_payloads import BlobPayloadStore, BlobPayloadStoreOptions

Turns = Generator[task.Task[Any], Any, Any]

blueprint = df.Blueprint(http_auth_level=func.AuthLevel.ANONYMOUS)

THRESHOLD_BYTES = 10_000
STORE = BlobPayloadStore(
    BlobPayloadStoreOptions(
        threshold_bytes=THRESHOLD_BYTES,
        container_name="payloads",
        connection_string=os.environ["AzureWebJobsStorage"],  # noqa: SIM112 # so the platform spells it
        api_version="2025-05-05",  # the newest that Azurite knows may lag behind the SDK's own
    )
)


@blueprint.orchestration_trigger(context_name="context")
def carries(context: task.OrchestrationContext, text: str) -> Turns:
    """Sends its input through an activity, a child, an entity, an event and its custom status."""
    through_activity = yield context.call_activity("passes_on", input=text)
    through_child = yield context.call_sub_orchestrator("passes_on_too", input=through_activity)
    box = EntityInstanceId("box", context.instance_id)
    yield context.call_entity(box, "put", through_child)
    through_entity = yield context.call_entity(box, "get")
    context.set_custom_status(through_entity)
    through_event = yield context.wait_for_external_event("text")
    return {"all_equal": {text, through_activity, through_child, through_entity, through_event} == {text}}


@blueprint.orchestration_trigger(context_name="context")
def passes_on_too(context: task.OrchestrationContext, text: str) -> str:  # noqa: ARG001 # the binding names it
    return text


@blueprint.activity_trigger(input_name="text")
async def passes_on(text: str) -> str:
    return text


@blueprint.entity_trigger(context_name="context", entity_name="box")
class Box(DurableEntity):
    """Holds a text."""

    def put(self, text: str) -> None:
        self.set_state(text)

    def get(self) -> str:
        text: str = self.get_state(str, "")
        return text


@blueprint.route(route="payloads/{instance_id}/event", methods=["POST"])
@blueprint.durable_client_input(client_name="client")
def send_text(req: func.HttpRequest, client: df.SyncDurableFunctionsClient) -> func.HttpResponse:
    client.raise_orchestration_event(req.route_params["instance_id"], "text", data=req.get_body().decode())
    return func.HttpResponse(status_code=202)


@blueprint.route(route="payloads/{instance_id}", methods=["GET"])
@blueprint.durable_client_input(client_name="client")
async def read_texts(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    """How long the input and the custom status are when they are read through the client."""
    state = await client.get_orchestration_state(req.route_params["instance_id"])
    if state is None:
        return func.HttpResponse(status_code=404)
    found = {
        "status": state.runtime_status.name,
        "input": len(json.loads(state.serialized_input or '""')),
        "custom": len(json.loads(state.serialized_custom_status or '""')),
        "output": json.loads(state.serialized_output or "null"),
        "error": state.failure_details.message if state.failure_details else None,
    }
    return func.HttpResponse(json.dumps(found), mimetype="application/json")
