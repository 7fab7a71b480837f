"""Functions whose services are not on the machine: fired by hand, or through Event Grid's webhook."""

import json
from typing import List  # noqa: UP035 # the worker reads no other spelling

import azure.functions as func

blueprint = func.Blueprint()  # type: ignore[no-untyped-call] # azure-functions has no types

EVENTS: list[dict[str, object]] = []


@blueprint.service_bus_queue_trigger(arg_name="message", queue_name="orders", connection="SERVICE_BUS")
def on_service_bus(message: func.ServiceBusMessage) -> None:
    body = message.get_body().decode()
    EVENTS.append({"from": "bus", "body": body, "id": message.message_id, "count": message.delivery_count})


@blueprint.event_hub_message_trigger(
    arg_name="events", event_hub_name="hub", connection="EVENT_HUB", cardinality=func.Cardinality.MANY
)
def on_event_hub(events: List[func.EventHubEvent]) -> None:  # noqa: UP006 # the worker reads no other spelling
    EVENTS.extend(
        {"from": "hub", "body": event.get_body().decode(), "number": event.sequence_number}
        for event in events
    )


@blueprint.kafka_trigger(
    arg_name="events", topic="news", broker_list="%BROKERS%", cardinality=func.Cardinality.MANY
)
def on_kafka(events: List[func.KafkaEvent]) -> None:  # noqa: UP006 # the worker reads no other spelling
    EVENTS.extend(
        {"from": event.topic, "body": event.get_body().decode(), "offset": event.offset} for event in events
    )


@blueprint.cosmos_db_trigger(
    arg_name="documents", container_name="orders", database_name="db", connection="COSMOS"
)
def on_cosmos(documents: func.DocumentList) -> None:
    EVENTS.extend({"from": "cosmos", "id": document["id"]} for document in documents)


@blueprint.event_grid_trigger(arg_name="event")
def on_event_grid(event: func.EventGridEvent) -> None:
    if event.subject == "fail":
        raise RuntimeError("as its message asks")
    EVENTS.append({"from": "grid", "id": event.id, "type": event.event_type})


@blueprint.event_grid_trigger(arg_name="event")
def on_cloud_event(event: func.CloudEvent) -> None:
    EVENTS.append({"from": event.source, "id": event.id})


@blueprint.route(route="events", methods=["GET"], auth_level=func.AuthLevel.ANONYMOUS)
def events(req: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001 # the binding names it
    return func.HttpResponse(json.dumps(EVENTS), mimetype="application/json")
