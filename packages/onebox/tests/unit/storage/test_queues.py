from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from azure.core.exceptions import ServiceResponseError
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.queue import LinearRetry, QueueClient

from onebox.storage.ports import WELL_KNOWN_KEY, StoragePorts
from onebox.storage.queues import StorageQueue


class ClientInMemory:
    credential = None
    account_name = url = ""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send_message(self, content: str) -> None:
        self.sent.append(content)


async def test_watchers_of_a_queue_are_notified_once_a_message_is_in_it() -> None:
    client = ClientInMemory()
    with ThreadPoolExecutor(1) as threads:
        queue = StorageQueue(cast("QueueClient", client), threads)
        seen: list[int] = []
        queue.watch(lambda: seen.append(len(client.sent)))
        await queue.put("one")
        await queue.put("two")
    assert seen == [1, 2]


class Unanswered(RequestsTransport):  # type: ignore[misc] # the SDK imports it lazily
    """Loses every answer."""

    sent = 0

    def send(self, *_: object, **__: object) -> Any:
        self.sent += 1
        raise ServiceResponseError("no answer")


async def test_a_read_that_fails_is_reported_at_the_first_try() -> None:
    transport = Unanswered()
    client = QueueClient.from_connection_string(
        StoragePorts(1, 2, 3).connection_with(WELL_KNOWN_KEY),
        "work",
        transport=transport,
        retry_policy=LinearRetry(backoff=0, random_jitter_range=0),
    )
    with ThreadPoolExecutor(1) as threads, pytest.raises(ServiceResponseError):
        await StorageQueue(client, threads).receive(16, 600)
    assert transport.sent == 1
