"""Output bindings to storage: messages into queues, blobs into containers."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from onebox.app_settings import AppSettings
from onebox.clock import Clock
from onebox.host_json import Queues
from onebox.storage.blobs import BlobAccount, Blobs
from onebox.storage.queues import StorageQueues, encode
from onebox.worker.expressions import expand
from onebox.worker.functions import Binding
from onebox.worker.outputs import Sender


class StorageOutputs:
    """Writes queue messages and blobs to the account that a binding's `connection` names."""

    def __init__(
        self, settings: AppSettings, storage: StorageQueues, blobs: Blobs, queues: Queues, clock: Clock
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._blobs = blobs
        self._encoding = queues.message_encoding
        self._clock = clock

    @property
    def senders(self) -> Mapping[str, Sender]:
        """The senders by binding type."""
        return {"queue": self.send_messages, "blob": self.send_blob}

    async def send_messages(self, binding: Binding, datum: Any, values: Mapping[str, str]) -> None:
        """Put each message into the queue, which is made when it is missing."""
        name = self._expanded(binding, "queueName", values).lower()
        queue = self._storage.open(self._connection(binding), name)
        await queue.create()
        for body in messages_in(datum):
            await queue.put(encode(body, self._encoding))

    async def send_blob(self, binding: Binding, datum: Any, values: Mapping[str, str]) -> None:
        """Write the blob."""
        account = BlobAccount.from_connection_string(self._connection(binding))
        await self._blobs.put(account, self._expanded(binding, "path", values), _bytes(datum.value))

    def _connection(self, binding: Binding) -> str:
        return self._settings.connection(binding.text("connection"), where=binding.name)

    def _expanded(self, binding: Binding, key: str, values: Mapping[str, str]) -> str:
        with_settings = self._settings.expand(binding.text(key) or "", where=binding.name)
        return expand(with_settings, values, self._clock.now())


def messages_in(datum: Any) -> Iterator[bytes]:
    """Yield the bodies that an output holds: a list is a message per item, anything else is one message."""
    if datum.type != "json":
        yield _bytes(datum.value)
        return
    content = json.loads(datum.value)
    for item in content if isinstance(content, list) else [content]:
        yield _body(item).encode()


def _body(item: Any) -> str:
    if isinstance(item, str):
        return item
    # How azure-functions writes a QueueMessage; the service gives it an id of its own.
    if isinstance(item, dict) and set(item) == {"id", "body"}:
        return str(item["body"])
    return json.dumps(item)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
