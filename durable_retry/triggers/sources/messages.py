"""Messages that arrive one by one: the storage queue and its poison queue, Service Bus, Event Grid.

A message is done once it is an operation or a dead letter of the app. When the app's own storage or task hub
fails, the function raises, and the source delivers the message again, as often as that source does.
"""

from typing import Final

import azure.durable_functions as df
import azure.functions as func
from azure.core.exceptions import AzureError

from durable_retry.engine.base.names import OPERATIONS_QUEUE, POISON_QUEUE, QUEUE_SOURCE
from durable_retry.engine.base.trace_context import trace_in
from durable_retry.engine.sources import Arrival
from durable_retry.runtime.binding import TaskHub, bind_hub
from durable_retry.services.queue import keep_poison, plain_body, return_poison
from durable_retry.services.sources import intake
from durable_retry.settings.sources import IntakeSettings, max_dequeue_count
from durable_retry.settings.storage_account import STORAGE

queue_blueprint = df.Blueprint()
event_grid_blueprint = df.Blueprint()

SERVICE_BUS: Final = "service_bus"
EVENT_GRID: Final = "event_grid"

# A Service Bus queue grants 10 by default; the others are for a task hub that is away.
_FREE_DELIVERIES: Final = 3


@queue_blueprint.queue_trigger(arg_name="message", queue_name=OPERATIONS_QUEUE, connection=STORAGE)
@bind_hub(queue_blueprint)
async def operations_queue(message: func.QueueMessage, hub: TaskHub) -> None:
    """Start the operation that a message of the queue `operations` holds.

    The host's peek-lock does the rest (host.json, `extensions.queues`): a message is hidden while it runs and
    deleted afterwards; one that could not be accepted is visible again `visibilityTimeout` after the end of
    the run, and moves to `operations-poison` after `maxDequeueCount` runs. Why they are as they are:
    docs/sources.md.
    """
    # While something is behind, the first half of the runs may be given back; the others are for the start.
    arrival = Arrival(
        source=QUEUE_SOURCE,
        body=plain_body(message.get_body()),
        place=OPERATIONS_QUEUE,
        native_id=str(message.id or ""),
        may_be_left=(message.dequeue_count or 1) * 2 <= max_dequeue_count(),
    )
    await intake().accept(hub, arrival)


@queue_blueprint.queue_trigger(arg_name="message", queue_name=POISON_QUEUE, connection=STORAGE)
async def operations_poison(message: func.QueueMessage) -> None:
    """Keep a message that the host moved to `operations-poison` as a dead letter, with its text.

    What storage does not take goes back as a new message. A poison queue has no poison queue: the host hides
    for ten minutes what fails there, and delivers it `maxDequeueCount` times only.
    """
    try:
        await keep_poison(str(message.id or ""), message.get_body())
    except AzureError:
        await return_poison(message.get_body())


def service_bus_blueprint(*, has_sessions: bool) -> df.Blueprint:
    """Return the blueprint of Service Bus.

    Args:
        has_sessions: Whether the queue requires sessions: no receiver reads both kinds of queues.
    """
    blueprint = df.Blueprint()
    trigger = blueprint.service_bus_queue_trigger(
        arg_name="message",
        queue_name=IntakeSettings.reference_to("service_bus_queue"),
        connection=IntakeSettings.name_of("service_bus_connection"),
        data_type=func.DataType.BINARY,
        is_sessions_enabled=has_sessions,
    )
    trigger(bind_hub(blueprint)(operations_service_bus))
    return blueprint


async def operations_service_bus(message: func.ServiceBusMessage, hub: TaskHub) -> None:
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
            partition=message.session_id or "",
            may_be_left=(message.delivery_count or 1) <= _FREE_DELIVERIES,
            trace=trace_in(message.application_properties),
        ),
    )


@event_grid_blueprint.event_grid_trigger(arg_name="event")
@bind_hub(event_grid_blueprint)
async def operations_event_grid(event: str, hub: TaskHub) -> None:
    """Start the operation that an event holds, in the CloudEvents or the Event Grid schema.

    The parameter is the event's own JSON text: the binding's typed form cannot read what is not an object,
    and fails before any code of ours runs. Event Grid itself delivers again, for a day, what fails here.
    """
    await intake().accept(hub, Arrival(source=EVENT_GRID, body=event.encode(errors="surrogatepass")))
