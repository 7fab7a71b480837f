"""Sending to storage queues. A queue is made when it is first found missing.

A message is encoded as host.json says (`extensions.queues.messageEncoding`), so that a queue trigger of the
same app reads it: as it is with `none`, and in base64 otherwise, which is the host's default.
"""

import asyncio
import base64
from functools import cache
from typing import Any, Final

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.queue import QueueServiceClient

from stores.settings import encodes_queue_messages
from stores.storage_account import ConnectionString, StorageAccount, credential_of, storage_account

MAX_MESSAGE_BYTES: Final = 64 * 1024
"""What the service takes of one message, as it is sent."""

_NEVER: Final = -1
"""Time to live: a message waits for its consumer however long that takes."""

_CLIENT_OPTIONS: Final[dict[str, Any]] = {
    "retry_total": 2,
    # Seconds: half of one, then two, give or take half of one. The client's own are 15 and 18, and it would
    # hold a caller, and a thread, for most of a minute.
    "initial_backoff": 0.5,
    "increment_base": 1.5,
    "random_jitter_range": 0.5,
    "connection_timeout": 3,
    "read_timeout": 10,
}

_REFUSED_STATUSES: Final = (400, 409, 413)


class MessageRefusedError(Exception):
    """The service refused a message for what it is; the same message would be refused again."""


async def send_message(queue: str, text: str) -> None:
    """Send a message.

    Args:
        queue: Its name.
        text: What the consumer gets.

    Raises:
        MessageRefusedError: It is too large, or the queue's name can never be one.
        azure.core.exceptions.AzureError: The account did not take it; it may later.
    """
    encoded = base64.b64encode(text.encode()).decode() if encodes_queue_messages() else text
    size = len(encoded.encode())
    if size > MAX_MESSAGE_BYTES:
        raise MessageRefusedError(f"the message has {size} bytes; a queue takes {MAX_MESSAGE_BYTES}")
    try:
        await asyncio.to_thread(_send, queue, encoded)
    except HttpResponseError as error:
        if error.status_code in _REFUSED_STATUSES:
            raise MessageRefusedError(f"the queue {queue} refused it: {error.reason}") from error
        raise


def _send(queue: str, encoded: str) -> None:
    client = _service(storage_account()).get_queue_client(queue)
    try:
        client.send_message(encoded, time_to_live=_NEVER)
    except ResourceNotFoundError:
        client.create_queue()
        client.send_message(encoded, time_to_live=_NEVER)


@cache
def _service(account: StorageAccount) -> QueueServiceClient:
    if isinstance(account, ConnectionString):
        return QueueServiceClient.from_connection_string(account.text, **_CLIENT_OPTIONS)
    credential = credential_of(account.identity)
    return QueueServiceClient(account.queues_url, credential=credential, **_CLIENT_OPTIONS)
