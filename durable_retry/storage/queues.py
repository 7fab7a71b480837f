"""Send messages to storage queues, and take those that no trigger takes any more.

A missing queue is created when a message is sent.

host.json's `extensions.queues.messageEncoding` decides the encoding, so that a queue trigger of the same app
can read the message: plain text with `none`, else base64, the host's default.
"""

import base64
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from durable_retry.base.errors import MessageRefusedError
from durable_retry.settings.configuration import encodes_queue_messages
from durable_retry.storage.clients import CLIENT_OPTIONS, client_of_account, items_of, run_in_pool

if TYPE_CHECKING:
    from azure.storage.queue import QueueServiceClient

_SERVICE: Final = "azure.storage.queue:QueueServiceClient"
"""Imported when a queue is first used: with aiohttp, which it brings and nothing here needs, it is a tenth of
the app's start."""

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


async def send_message(queue: str, text: str, *, hidden_seconds: int | None = None) -> None:
    """Send a message, which is hidden for so long; None for not at all.

    Raises:
        MessageRefusedError: It is too large, or the queue's name is invalid.
    """
    encoded = base64.b64encode(text.encode()).decode() if encodes_queue_messages() else _fit_for_xml(text)
    size = len(encoded.encode())
    if size > MAX_MESSAGE_BYTES:
        raise MessageRefusedError(f"the message has {size} bytes; a queue takes {MAX_MESSAGE_BYTES}")
    try:
        await run_in_pool(partial(_send_message, queue, encoded, hidden_seconds))
    except HttpResponseError as error:
        if error.status_code in _REFUSED_STATUSES:
            raise MessageRefusedError(f"the queue {queue} refused it: {error.reason}") from error
        raise


# XML 1.0 (section 2.2) forbids these characters: nobody could read a queue with one of them.
_NO_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _fit_for_xml(text: str) -> str:
    """Escape what XML cannot carry, as JSON does inside its strings: six characters for U+FFFF."""
    return _NO_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _send_message(queue: str, encoded: str, hidden_seconds: int | None) -> None:
    client = _queue_service().get_queue_client(queue)
    send = partial(client.send_message, encoded, time_to_live=_NEVER, visibility_timeout=hidden_seconds)
    try:
        send()
    except ResourceNotFoundError:
        client.create_queue()
        send()


async def exists(queue: str) -> bool:
    """Whether there is a queue of this name."""
    try:
        await run_in_pool(_queue_service().get_queue_client(queue).get_queue_properties)
    except ResourceNotFoundError:
        return False
    return True


async def make(queue: str) -> bool:
    """Make a queue; False when there is one of this name."""
    if await exists(queue):
        return False
    # No error where another process made the queue meanwhile: the service gives the same answer.
    await run_in_pool(_queue_service().get_queue_client(queue).create_queue)
    return True


_TAKEN_AT_ONCE: Final = 32
"""The most messages that the service peeks at or gives out in one request."""

_TAKEN_SECONDS: Final = 60
"""For how long a message is hidden that was taken; by then it is deleted, or the next run takes it."""


@dataclass(frozen=True, slots=True)
class TakenMessage:
    """A message that was received and is to be deleted."""

    id: str  # the service's own
    sent_at: datetime | None  # None where the service does not say it
    receipt: str  # what proves to the service who received it
    body: bytes  # as a trigger would get it


async def take_left(queue: str, deliveries: int) -> list[TakenMessage]:
    """Receive messages that were delivered so often that no trigger takes them; none without such a queue."""
    try:
        return await run_in_pool(partial(_take_left, queue, deliveries))
    except ResourceNotFoundError:
        return []


def _take_left(queue: str, deliveries: int) -> list[TakenMessage]:
    client = _queue_service().get_queue_client(queue)
    # Peeking counts as no delivery: where none of them is due, receiving would count one for each message.
    seen = client.peek_messages(max_messages=_TAKEN_AT_ONCE)
    if all((message.dequeue_count or 0) < deliveries for message in seen):
        return []
    # A list, since the iterator goes on receiving: it would get the messages that the loop gives back.
    pages = client.receive_messages(max_messages=_TAKEN_AT_ONCE, visibility_timeout=_TAKEN_SECONDS)
    received = list(items_of(pages))
    taken = []
    for message in received:
        if (message.dequeue_count or 0) > deliveries:
            taken.append(
                TakenMessage(
                    message.id,
                    message.inserted_on,
                    message.pop_receipt or "",
                    _decoded_message(message.content),
                )
            )
        else:
            client.update_message(message, visibility_timeout=0)
    return taken


def _decoded_message(content: str) -> bytes:
    if encodes_queue_messages():
        with suppress(ValueError):  # Plain text, put there by hand: the trigger would give it up, too.
            return base64.b64decode(content, validate=True)
    return content.encode()


async def delete_taken(queue: str, message: TakenMessage) -> None:
    """Delete a message that was taken; no error when it is gone, or somebody has it again."""
    client = _queue_service().get_queue_client(queue)
    with suppress(ResourceNotFoundError, ResourceExistsError):
        await run_in_pool(partial(client.delete_message, message.id, message.receipt))


@cache
def _queue_service() -> "QueueServiceClient":
    # Once per process: app settings do not change while it runs, and a call should not read them again.
    client: QueueServiceClient = client_of_account(_SERVICE, "queues_url", _CLIENT_OPTIONS)
    return client
