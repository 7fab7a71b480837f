"""Azure storage queues for asyncio code: the SDK's blocking client on a few threads of its own.

The SDK's asynchronous client needs a second HTTP stack (aiohttp); a few threads serve one machine as well.
Each processed message costs one deletion request. That one is sent without the SDK, whose pipeline takes ten
times the processor time of the request itself.
"""

import asyncio
import base64
import binascii
import contextlib
import functools
import http.client
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, Literal
from urllib.parse import quote, urlsplit
from urllib.request import getproxies

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import LinearRetry, QueueClient, QueueMessage

from onebox.storage.shared_key import SharedKey

Encoding = Literal["base64", "none"]

_THREADS = 8
_RETRY_SECONDS: Final = 1
_RETRIES: Final = 3
_VERSION: Final = "2019-02-02"  # of the service's protocol, as the SDK sends it
_ANSWER_SECONDS: Final = 20


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


class _Deletions:
    """Deletes messages of one queue by plain requests, on one connection per thread that deletes."""

    def __init__(self, client: QueueClient) -> None:
        key = getattr(client.credential, "account_key", None)  # None with a shared access signature
        self._key: SharedKey | None = None
        if key is not None and not getproxies():
            self._key = SharedKey(client.account_name or "", base64.b64decode(key))
        self._url = urlsplit(client.url)
        self._idle: list[http.client.HTTPConnection] = []
        self._closed = False

    def delete(self, message: QueueMessage) -> bool:
        """Return whether the message was deleted; if not, the caller asks the SDK, which says why."""
        if self._key is None:
            return False
        path = f"{self._url.path}/messages/{message.id}"
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        query = [f"popreceipt:{message.pop_receipt or ''}"]
        headers["Authorization"] = self._key.authorization("DELETE", path, query, headers)
        target = f"{path}?popreceipt={quote(message.pop_receipt or '', safe='')}"
        # The service may have closed a connection that was kept.
        return any(self._request(each, target, headers) for each in self._connections())

    def close(self) -> None:
        """Close the connections; one that is in use is closed after that."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _connections(self) -> Iterator[http.client.HTTPConnection]:
        """Yield one that was kept, if there is any, and a new one."""
        with contextlib.suppress(IndexError):  # another thread may take it first
            yield self._idle.pop()
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        yield kind(self._url.hostname or "", self._url.port, timeout=_ANSWER_SECONDS)

    def _request(self, connection: http.client.HTTPConnection, target: str, headers: dict[str, str]) -> bool:
        try:
            connection.request("DELETE", target, headers=headers)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return False
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        return answer.status == HTTPStatus.NO_CONTENT


class StorageQueue:
    """One queue; made by `StorageQueues`."""

    def __init__(self, client: QueueClient, threads: ThreadPoolExecutor) -> None:
        self._client = client
        self._threads = threads
        self._deletions = _Deletions(client)
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

        A failure is reported at the first try: it may have hidden messages, and a second try would find none.

        Raises:
            azure.core.exceptions.AzureError: Storage cannot be reached or refuses.
        """
        return await self._call(functools.partial(self._receive, count, hidden_seconds))

    def _receive(self, count: int, hidden_seconds: int) -> list[QueueMessage]:
        pages = self._client.receive_messages(
            messages_per_page=count, max_messages=count, visibility_timeout=hidden_seconds, retry_total=0
        ).by_page()
        try:
            return list(itertools.chain.from_iterable(pages))
        finally:
            vars(pages).clear()  # they refer to themselves: only the garbage collector would free the last

    async def put(self, content: str) -> None:
        """Add a message whose text is stored as it is given.

        Raises:
            azure.core.exceptions.AzureError: Storage cannot be reached or refuses.
        """
        await self._call(functools.partial(self._client.send_message, content))
        for look in self._watchers:
            look()

    async def delete(self, message: QueueMessage) -> None:
        """Delete a message that was received.

        Raises:
            MessageLostError: The pop receipt is no longer valid.
            azure.core.exceptions.AzureError: Storage cannot be reached or refuses.
        """
        try:
            await self._call(functools.partial(self._delete, message))
        except ResourceNotFoundError as gone:
            raise MessageLostError(str(message.id)) from gone

    def _delete(self, message: QueueMessage) -> None:
        if not self._deletions.delete(message):
            self._client.delete_message(message.id, message.pop_receipt)

    async def hide(self, message: QueueMessage, seconds: int) -> None:
        """Hide a received message for so long from now (0 shows it at once) and note its new pop receipt.

        Raises:
            MessageLostError: The pop receipt is no longer valid.
            azure.core.exceptions.AzureError: Storage cannot be reached or refuses.
        """
        try:
            updated = await self._call(
                functools.partial(
                    self._client.update_message, message.id, message.pop_receipt, visibility_timeout=seconds
                )
            )
        except ResourceNotFoundError as gone:
            raise MessageLostError(str(message.id)) from gone
        message.pop_receipt = updated.pop_receipt
        message.next_visible_on = updated.next_visible_on

    def close(self) -> None:
        """Close the connections that were kept for deletions."""
        self._deletions.close()

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
            # The SDK's own first pause is 15 s: a listener would find storage late that is back, and its
            # thread would outlast a stop.
            retry = LinearRetry(backoff=_RETRY_SECONDS, retry_total=_RETRIES, random_jitter_range=0)
            client = QueueClient.from_connection_string(connection, name, retry_policy=retry)
            self._open[key] = StorageQueue(client, self._threads)
        return self._open[key]

    def close(self) -> None:
        """Release the threads; calls under way are completed."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for queue in self._open.values():
            queue.close()
