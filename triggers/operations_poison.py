"""The queue `operations-poison`: what the host gave up becomes a dead letter, with its text."""

from typing import Final

import azure.durable_functions as df
import azure.functions as func

from engine.intake import Arrival
from engine.vocabulary import DeadLetterReason
from stores.setting_catalogue import STORAGE
from triggers.intake import Refusal, keep
from triggers.operations_queue import QUEUE, SOURCE, plain_body

blueprint = df.Blueprint()

POISON_QUEUE: Final = "operations-poison"

_REFUSAL: Final = Refusal(
    DeadLetterReason.POISON_MESSAGE,
    "the queue gave it up: every delivery ended before it could be taken over",
)


@blueprint.queue_trigger(arg_name="message", queue_name=POISON_QUEUE, connection=STORAGE.name)
async def operations_poison(message: func.QueueMessage) -> None:
    """Keep a message that the host moved here; what storage does not take is delivered again."""
    arrival = Arrival(
        source=SOURCE, body=plain_body(message.get_body()), place=QUEUE, native_id=str(message.id or "")
    )
    await keep(arrival, _REFUSAL)
