"""The storage queue `operations`, and its poison queue.

A message is done once it is an operation or a dead letter of the app. When the app's own storage or task hub
fails, the function raises, and the queue delivers the message again.
"""

import azure.durable_functions as df
import azure.functions as func
from azure.core.exceptions import AzureError

from durable_retry.base.names import OPERATIONS_QUEUE, POISON_QUEUE
from durable_retry.hub.binding import TaskHub, bind_hub
from durable_retry.intake.queue import accept_message, keep_poison, plain_body, return_poison
from durable_retry.rules.intake import host_instant
from durable_retry.settings.storage_account import STORAGE

blueprint = df.Blueprint()


@blueprint.queue_trigger(arg_name="message", queue_name=OPERATIONS_QUEUE, connection=STORAGE)
@bind_hub(blueprint)
async def operations_queue(message: func.QueueMessage, hub: TaskHub) -> None:
    """Start the operation that a message of the queue `operations` holds.

    The host's peek-lock does the rest (host.json, `extensions.queues`): a message is hidden while it runs and
    deleted afterwards; one that could not be accepted is visible again `visibilityTimeout` after the end of
    the run, and moves to `operations-poison` after `maxDequeueCount` runs. Reasons for these settings:
    docs/sources.md.
    """
    body, deliveries = plain_body(message.get_body()), message.dequeue_count or 1
    await accept_message(hub, str(message.id or ""), body, deliveries)


@blueprint.queue_trigger(arg_name="message", queue_name=POISON_QUEUE, connection=STORAGE)
async def operations_poison(message: func.QueueMessage) -> None:
    """Keep a message that the host moved to `operations-poison` as a dead letter, with its text.

    A message that storage does not take goes back as a new one. If the function failed, the host would hide
    the message for ten minutes, deliver it `maxDequeueCount` times, and then leave it where it is.
    """
    try:
        given_up_at = host_instant(message.insertion_time)
        await keep_poison(str(message.id or ""), message.get_body(), given_up_at)
    except AzureError:
        await return_poison(message.get_body())
