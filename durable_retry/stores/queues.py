"""Send messages to storage queues. A missing queue is created on first use.

host.json's `extensions.queues.messageEncoding` decides the encoding, so that a queue trigger of the same app
can read the message: plain text with `none`, else base64, the host's default.
"""

import base64
from functools import cache, partial
from typing import Any, Final

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.queue import QueueServiceClient

from durable_retry.settings.configuration import encodes_queue_messages
from durable_retry.settings.storage_account import (
    ConnectionString,
    credential_of,
    storage_account,
)
from durable_retry.stores.storage_clients import CLIENT_OPTIONS, run_in_pool

MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Largest message that the service accepts, counted after encoding."""

_NEVER: Final = -1
"""Time to live: a message never expires."""

_CLIENT_OPTIONS: Final[dict[str, Any]] = {
    **CLIENT_OPTIONS,
    # Seconds. By default the client waits 15 and more, and holds a thread for that time.
    "initial_backoff": 0.5,
    "increment_base": 1.5,
    "random_jitter_range": 0.5,
}

_REFUSED_STATUSES: Final = (400, 409, 413)


class MessageRefusedError(Exception):
    """The service refused this message permanently; sending it again cannot succeed."""


async def send_message(queue: str, text: str) -> None:
    """Send a message.

    Args:
        queue: Its name.
        text: The message before encoding.

    Raises:
        MessageRefusedError: It is too large, or the queue's name is invalid.
        azure.core.exceptions.AzureError: A failure that may pass.
    """
    encoded = base64.b64encode(text.encode()).decode() if encodes_queue_messages() else text
    size = len(encoded.encode())
    if size > MAX_MESSAGE_BYTES:
        raise MessageRefusedError(f"the message has {size} bytes; a queue takes {MAX_MESSAGE_BYTES}")
    try:
        await run_in_pool(partial(_send, queue, encoded))
    except HttpResponseError as error:
        if error.status_code in _REFUSED_STATUSES:
            raise MessageRefusedError(f"the queue {queue} refused it: {error.reason}") from error
        raise


def _send(queue: str, encoded: str) -> None:
    client = _service().get_queue_client(queue)
    try:
        client.send_message(encoded, time_to_live=_NEVER)
    except ResourceNotFoundError:
        client.create_queue()
        client.send_message(encoded, time_to_live=_NEVER)


@cache
def _service() -> QueueServiceClient:
    # Once per process: app settings do not change while it runs, and a call should not read them again.
    account = storage_account()
    if isinstance(account, ConnectionString):
        return QueueServiceClient.from_connection_string(account.text, **_CLIENT_OPTIONS)
    credential = credential_of(account.identity)
    return QueueServiceClient(account.queues_url, credential=credential, **_CLIENT_OPTIONS)
