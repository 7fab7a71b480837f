"""Service Bus: a queue whose messages each hold an operation.

A message is completed once it is an operation or a dead letter of ours; it is abandoned, and delivered again,
only for trouble of our own side. Why a malformed one is not settled into the queue's own dead letters:
docs/decisions/service-bus-dead-letters.md.
"""

from typing import Final

import azure.durable_functions as df
import azure.functions as func

from durable_retry.engine.base.trace_context import trace_in
from durable_retry.engine.intake.message import Arrival
from durable_retry.services.intake import intake
from durable_retry.settings.catalogue import SERVICE_BUS_CONNECTION, SERVICE_BUS_QUEUE

blueprint = df.Blueprint()

SOURCE: Final = "service_bus"

_FREE_DELIVERIES: Final = 3
"""Of the 10 that a queue grants by default; the others are for a task hub that is away."""


@blueprint.service_bus_queue_trigger(
    arg_name="message",
    queue_name=SERVICE_BUS_QUEUE.reference,
    connection=SERVICE_BUS_CONNECTION.name,
    data_type=func.DataType.BINARY,
)
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def operations_service_bus(message: func.ServiceBusMessage, hub: str) -> None:
    """Start the operation that a message holds."""
    await intake().accept(
        hub,
        Arrival(
            source=SOURCE,
            body=message.get_body(),
            place=intake().settings.places.get(SOURCE, ""),
            native_id=message.message_id or "",
            may_be_left=(message.delivery_count or 1) <= _FREE_DELIVERIES,
            trace=trace_in(message.application_properties),
        ),
    )
