from concurrent.futures import ThreadPoolExecutor
from typing import cast

from azure.storage.queue import QueueClient

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
