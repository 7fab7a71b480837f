"""Messages that arrive one by one: the storage queue and its poison queue, Service Bus, Event Grid.

A message is done once it is an operation or a dead letter of the app. When the app's own storage or task hub
fails, the function raises, and the source delivers the message again, as often as that source does.
"""

import base64
from typing import Final

import azure.durable_functions as df
import azure.functions as func

from durable_retry.engine.base.json_forms import trace_in
from durable_retry.engine.base.names import OPERATIONS_QUEUE, POISON_QUEUE, QUEUE_SOURCE, DeadLetterReason
from durable_retry.engine.intake import Arrival
from durable_retry.services.intake import Refusal, intake, keep_refused
from durable_retry.settings.catalogue import SERVICE_BUS_CONNECTION, SERVICE_BUS_QUEUE, STORAGE
from durable_retry.stores.task_hub import bind_hub

queue_blueprint = df.Blueprint()
event_grid_blueprint = df.Blueprint()
service_bus_blueprint = df.Blueprint()

SERVICE_BUS: Final = "service_bus"
EVENT_GRID: Final = "event_grid"

_GIVEN_UP: Final = Refusal(
    DeadLetterReason.POISON_MESSAGE,
    "the queue gave it up: every delivery ended before it could be taken over",
)

_FREE_DELIVERIES: Final = 3
"""Of the 10 that a Service Bus queue grants by default; the others are for a task hub that is away."""


@queue_blueprint.queue_trigger(arg_name="message", queue_name=OPERATIONS_QUEUE, connection=STORAGE.name)
@bind_hub(queue_blueprint)
async def operations_queue(message: func.QueueMessage, hub: str) -> None:
    """Start the operation that a message of the queue `operations` holds.

    The host's peek-lock does the rest (host.json, `extensions.queues`): a message is hidden while it runs and
    deleted afterwards; one that could not be accepted is visible again `visibilityTimeout` after the end of
    the run, and moves to `operations-poison` after `maxDequeueCount` runs. Why they are as they are:
    docs/sources.md.
    """
    # While something is behind, the first half of the runs may be given back; the others are for the start.
    most = intake().settings.max_dequeue_count
    arrival = Arrival(
        source=QUEUE_SOURCE,
        body=plain_body(message.get_body()),
        place=OPERATIONS_QUEUE,
        native_id=str(message.id or ""),
        may_be_left=(message.dequeue_count or 1) * 2 <= most,
    )
    await intake().accept(hub, arrival)


@queue_blueprint.queue_trigger(arg_name="message", queue_name=POISON_QUEUE, connection=STORAGE.name)
async def operations_poison(message: func.QueueMessage) -> None:
    """Keep a message that the host moved to `operations-poison` as a dead letter, with its text.

    What storage does not take is delivered again.
    """
    arrival = Arrival(
        source=QUEUE_SOURCE,
        body=plain_body(message.get_body()),
        place=OPERATIONS_QUEUE,
        native_id=str(message.id or ""),
    )
    await keep_refused(arrival, _GIVEN_UP)


def decoded(text: str) -> str:
    """Return a queue message's JSON text: many SDKs write messages in base64, and host.json says `none`.

    JSON never looks like base64 of JSON: it begins with a brace, which the alphabet of base64 does not have.
    """
    stripped = text.strip()
    try:
        inside = "" if stripped.startswith("{") else base64.b64decode(stripped, validate=True).decode()
    except ValueError:  # not base64, or not UTF-8 in it
        return text
    return inside if inside.lstrip().startswith("{") else text


def plain_body(body: bytes) -> bytes:
    """Return a message's bytes as `decoded` returns its text; what is no text stays as it is."""
    try:
        return decoded(body.decode()).encode()
    except UnicodeDecodeError:
        return body


@service_bus_blueprint.service_bus_queue_trigger(
    arg_name="message",
    queue_name=SERVICE_BUS_QUEUE.reference,
    connection=SERVICE_BUS_CONNECTION.name,
    data_type=func.DataType.BINARY,
)
@bind_hub(service_bus_blueprint)
async def operations_service_bus(message: func.ServiceBusMessage, hub: str) -> None:
    """Start the operation that a Service Bus message holds.

    Why a malformed one is not settled into the queue's own dead letters: docs/decisions/wrong-messages.md.
    """
    await intake().accept(
        hub,
        Arrival(
            source=SERVICE_BUS,
            body=message.get_body(),
            place=intake().settings.places.get(SERVICE_BUS, ""),
            native_id=message.message_id or "",
            may_be_left=(message.delivery_count or 1) <= _FREE_DELIVERIES,
            trace=trace_in(message.application_properties),
        ),
    )


@event_grid_blueprint.event_grid_trigger(arg_name="event")
@bind_hub(event_grid_blueprint)
async def operations_event_grid(event: str, hub: str) -> None:
    """Start the operation that an event holds, in the CloudEvents or the Event Grid schema.

    The parameter is the event's own JSON text: the binding's typed form cannot read what is not an object,
    and fails before any code of ours runs. Event Grid itself delivers again, for a day, what fails here.
    """
    await intake().accept(hub, Arrival(source=EVENT_GRID, body=event.encode(errors="surrogatepass")))
