"""Azure storage queues for asyncio code: the SDK's blocking client on a few threads of its own.

The SDK's asynchronous client needs a second HTTP stack (aiohttp); a few threads serve one machine as well.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import QueueClient, QueueMessage

Encoding = Literal["base64", "none"]

_THREADS = 8


class UndecodableError(ValueError):
    """The message is not in the encoding that host.json names."""


def decode(content: str, encoding: Encoding) -> bytes:
    """Unwrap a message's text.

    Raises:
        UndecodableError: It is not base64 although it should be.
    """
    if encoding == "none":
        return content.encode()
    try:
        return base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError) as mistake:
        raise UndecodableError(str(mistake)) from None


def encode(body: bytes, encoding: Encoding) -> str:
    """Wrap a body for the queue."""
    return base64.b64encode(body).decode() if encoding == "base64" else body.decode()


class MessageLostError(Exception):
    """The message is gone, or somebody else received it meanwhile: its pop receipt is no longer valid."""


class StorageQueue:
    """One queue; made by `StorageQueues`."""

    def __init__(self, client: QueueClient, threads: ThreadPoolExecutor) -> None:
        self._client = client
        self._threads = threads
        self._watchers: list[Callable[[], None]] = []

    def watch(self, look: Callable[[], None]) -> None:
        """Register a call that follows each message put here by this process."""
        self._watchers.append(look)

    @property
    def name(self) -> str:
        """The queue's name."""
        return str(self._client.queue_name)

    async def create(self) -> None:
        """Create the queue unless it exists.

        Raises:
            azure.core.exceptions.AzureError: Storage cannot be reached or refuses.
        """
        try:
            await self._call(self._client.create_queue)
        except ResourceExistsError:
            return

    async def receive(self, count: int, hidden_seconds: int) -> list[QueueMessage]:
        """Take up to `count` messages (1 to 32) and hide them for so long.

        Raises:
            azure.core.exceptions.AzureError: Storage cannot be reached or refuses.
        """
        return await self._call(partial(self._receive, count, hidden_seconds))

    def _receive(self, count: int, hidden_seconds: int) -> list[QueueMessage]:
        pages = self._client.receive_messages(
            messages_per_page=count, max_messages=count, visibility_timeout=hidden_seconds
        )
        return list(pages)

    async def put(self, content: str) -> None:
        """Add a message whose text is stored as it is given.

        Raises:
            azure.core.exceptions.AzureError: Storage cannot be reached or refuses.
        """
        await self._call(partial(self._client.send_message, content))
        for look in self._watchers:
            look()

    async def delete(self, message: QueueMessage) -> None:
        """Delete a message that was received.

        Raises:
            MessageLostError: The pop receipt is no longer valid.
            azure.core.exceptions.AzureError: Storage cannot be reached or refuses.
        """
        try:
            await self._call(partial(self._client.delete_message, message.id, message.pop_receipt))
        except ResourceNotFoundError as gone:
            raise MessageLostError(str(message.id)) from gone

    async def hide(self, message: QueueMessage, seconds: int) -> None:
        """Hide a received message for so long from now (0 shows it at once) and note its new pop receipt.

        Raises:
            MessageLostError: The pop receipt is no longer valid.
            azure.core.exceptions.AzureError: Storage cannot be reached or refuses.
        """
        try:
            updated = await self._call(
                partial(
                    self._client.update_message, message.id, message.pop_receipt, visibility_timeout=seconds
                )
            )
        except ResourceNotFoundError as gone:
            raise MessageLostError(str(message.id)) from gone
        message.pop_receipt = updated.pop_receipt
        message.next_visible_on = updated.next_visible_on

    async def _call[T](self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


class StorageQueues:
    """Opens queues on a bounded number of threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="storage")
        self._open: dict[tuple[str, str], StorageQueue] = {}

    def open(self, connection: str, name: str) -> StorageQueue:
        """Return a queue, which need not exist yet.

        Raises:
            ValueError: The connection string is malformed.
        """
        key = (connection, name)
        if key not in self._open:
            client = QueueClient.from_connection_string(connection, name)
            self._open[key] = StorageQueue(client, self._threads)
        return self._open[key]

    def close(self) -> None:
        """Release the threads; calls under way are completed."""
        self._threads.shutdown(wait=False, cancel_futures=True)
