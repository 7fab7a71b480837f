"""An Azurite of the tests' own, so that they can reach the queues of the app they test."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

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
