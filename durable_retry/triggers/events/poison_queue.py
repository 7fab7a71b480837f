"""The queue `operations-poison`: what the host gave up becomes a dead letter, with its text."""

from typing import Final

import azure.durable_functions as df
import azure.functions as func

from durable_retry.engine.base.durable_names import OPERATIONS_QUEUE, POISON_QUEUE, QUEUE_SOURCE
from durable_retry.engine.base.enums import DeadLetterReason
from durable_retry.engine.intake.message import Arrival
from durable_retry.services.intake import Refusal, keep_refused
from durable_retry.settings.catalogue import STORAGE
from durable_retry.triggers.events.queue import plain_body

blueprint = df.Blueprint()

_REFUSAL: Final = Refusal(
    DeadLetterReason.POISON_MESSAGE,
    "the queue gave it up: every delivery ended before it could be taken over",
)


@blueprint.queue_trigger(arg_name="message", queue_name=POISON_QUEUE, connection=STORAGE.name)
async def operations_poison(message: func.QueueMessage) -> None:
    """Keep a message that the host moved here; what storage does not take is delivered again."""
    arrival = Arrival(
        source=QUEUE_SOURCE,
        body=plain_body(message.get_body()),
        place=OPERATIONS_QUEUE,
        native_id=str(message.id or ""),
    )
    await keep_refused(arrival, _REFUSAL)
