"""An Azurite of the tests' own, so that they can reach the queues of the app they test."""

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from azure.storage.queue import QueueClient, TextBase64DecodePolicy, TextBase64EncodePolicy

from durable_retry.storage import clients as storage_clients
from durable_retry.storage import queues
from onebox.storage.installation import BUNDLED, find_node
from scripts.processes import ServerProcess, free_storage_ports


class Account:
    """A storage account that somebody else keeps.

    Attributes:
        connection_string: With its key.
    """

    def __init__(self, connection_string: str) -> None:
        self.connection_string = connection_string

    def queue(self, name: str) -> QueueClient:
        """A queue whose messages are read and written as they are."""
        return QueueClient.from_connection_string(self.connection_string, name)

    def base64_queue(self, name: str) -> QueueClient:
        """A queue whose messages are base64, as host.json has it by default."""
        policies: Any = {
            "message_encode_policy": TextBase64EncodePolicy(),
            "message_decode_policy": TextBase64DecodePolicy(),
        }
        return QueueClient.from_connection_string(self.connection_string, name, **policies)

    def peeked(self, queue: str) -> list[dict[str, Any]]:
        """The documents that are in a queue, which stay there."""
        with self.queue(queue) as client:
            return [json.loads(message.content) for message in client.peek_messages(32)]


class Storage(Account):
    """Tables, queues and blobs in memory, reached with the emulator's well-known key.

    Attributes:
        urls: Of the account, by service.
    """

    def __init__(self, folder: Path, *, certificate: Path | None = None, key: Path | None = None) -> None:
        """Take free ports.

        Args:
            folder: Where its log goes.
            certificate: Of 127.0.0.1, PEM: https, and tokens beside keys; None means http and keys only.
            key: Of the certificate.
        """
        ports = free_storage_ports()
        scheme = "http" if certificate is None else "https"
        super().__init__(ports.connection_string.replace("http", scheme))
        services = {"blob": ports.blob, "queue": ports.queue, "table": ports.table}
        self.urls = {name: f"{scheme}://127.0.0.1:{port}/devstoreaccount1" for name, port in services.items()}
        options = ["--inMemoryPersistence", *ports.options]
        if certificate is not None:
            options += ["--oauth", "basic", "--cert", str(certificate), "--key", str(key)]
        self.server = ServerProcess(
            [find_node(), str(BUNDLED), *options],
            ready_url=f"{scheme}://127.0.0.1:{ports.table}/",
            log=folder / "azurite.log",
            env={},
        )


_CLIENTS = ((storage_clients, "table_service"), (queues, "_queue_service"))
_MAKERS = {(module, name): getattr(module, name).__wrapped__ for module, name in _CLIENTS}


def use_account(monkeypatch: pytest.MonkeyPatch, connection_string: str) -> None:
    """Make an account that of the app in this process, for one test.

    The app connects once per process; tests of several accounts share a process, and a client each.
    """
    monkeypatch.setenv("AzureWebJobsStorage", connection_string)
    for (module, name), make in _MAKERS.items():
        monkeypatch.setattr(module, name, partial(_client, make, connection_string))


@cache
def _client(make: Callable[[], Any], _connection_string: str) -> Any:
    return make()
