"""Storage accounts of the tests' own, so that they can reach the queues of the app they test."""

import json
import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from azure.storage.queue import QueueClient, TextBase64DecodePolicy, TextBase64EncodePolicy

from durable_retry.storage import clients as storage_clients
from durable_retry.storage import queues
from onebox.storage.installation import azurite_command
from onebox.storage.ports import WELL_KNOWN_KEY, StoragePorts
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
    """An account of an `Emulator`, reached with the emulator's well-known key.

    Attributes:
        urls: Of the account, by service.
    """

    def __init__(self, name: str, ports: StoragePorts, scheme: str) -> None:
        services = {"blob": ports.blob, "queue": ports.queue, "table": ports.table}
        self.urls = {service: f"{scheme}://127.0.0.1:{port}/{name}" for service, port in services.items()}
        endpoints = "".join(f"{service.title()}Endpoint={url};" for service, url in self.urls.items())
        key = f"AccountName={name};AccountKey={WELL_KNOWN_KEY}"
        super().__init__(f"DefaultEndpointsProtocol={scheme};{key};{endpoints}")


class Emulator:
    """An Azurite that keeps tables, queues and blobs in memory, and has accounts enough for all tests.

    Attributes:
        server: Its process.
    """

    def __init__(self, folder: Path, *, certificate: Path | None = None, key: Path | None = None) -> None:
        """Take free ports.

        Args:
            folder: Where its log goes.
            certificate: Of 127.0.0.1, PEM: https, and tokens beside keys; None means http and keys only.
            key: Of the certificate.
        """
        names = [f"account{number}" for number in range(_MOST_ACCOUNTS)]
        self._names = iter(names)
        self._ports = free_storage_ports()
        self._scheme = "http" if certificate is None else "https"
        options = ["--inMemoryPersistence", *self._ports.options]
        if certificate is not None:
            options += ["--oauth", "basic", "--cert", str(certificate), "--key", str(key)]
        self.server = ServerProcess(
            [*azurite_command(os.environ), *options],
            ready_url=f"{self._scheme}://127.0.0.1:{self._ports.table}/",
            log=folder / "azurite.log",
            env={"AZURITE_ACCOUNTS": ";".join(f"{name}:{WELL_KNOWN_KEY}" for name in names)},
        )

    def account(self) -> Storage:
        """Return an account that nobody else has."""
        return Storage(next(self._names), self._ports, self._scheme)


_MOST_ACCOUNTS = 500


@cache
def _shared() -> tuple[TemporaryDirectory[str], Emulator]:
    folder = TemporaryDirectory(prefix="azurite-")
    emulator = Emulator(Path(folder.name))
    emulator.server.start()
    return folder, emulator


def new_account() -> Storage:
    """Return an account of this process's own emulator, which runs until `stop_emulator`.

    A start takes as much processor time as many tests, so they share one.
    """
    return _shared()[1].account()


def stop_emulator() -> None:
    """Stop what `new_account` started."""
    if _shared.cache_info().currsize:
        folder, emulator = _shared()
        emulator.server.stop()
        folder.cleanup()


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
