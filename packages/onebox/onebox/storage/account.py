"""The storage account of an app: an emulator of its own, one that is joined, or an external account."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Literal

from azure.core.exceptions import AzureError
from azure.storage.queue import QueueServiceClient

from onebox import CannotStartError
from onebox.data_folder import DataFolder, write_private
from onebox.environment import ACCOUNTS, BLOB_PORT, DEVELOPMENT_STORAGE, QUEUE_PORT, STORAGE, TABLE_PORT
from onebox.storage.azurite import Azurite, PortChoice
from onebox.storage.ports import WELL_KNOWN_KEY, StoragePorts, key_from, ports_from

_LOG = logging.getLogger("onebox")


@dataclass(frozen=True)
class StorageAccount:
    """Where the app's storage is.

    Attributes:
        kind: `own` (an emulator of this data folder), `joined` (somebody else's emulator), or `external`.
        endpoints: URL by service; empty for an external account, whose connection string holds a secret.
        emulator: The process to stop; None unless the kind is `own`.
    """

    kind: Literal["own", "joined", "external"]
    endpoints: Mapping[str, str]
    emulator: Azurite | None = None

    @property
    def described(self) -> Mapping[str, str]:
        """Kind and endpoints, as `GET /admin/host/status` shows them."""
        return {"kind": self.kind, **self.endpoints}

    @property
    def trouble(self) -> str:
        """Why an emulator that was started here does not serve; "" when it does."""
        return "" if self.emulator is None else self.emulator.trouble

    async def stop(self) -> None:
        """Stop the emulator if it was started here."""
        if self.emulator is not None:
            await self.emulator.stop()


async def open_account(
    environ: MutableMapping[str, str], data: DataFolder, choice: PortChoice, *, join: bool
) -> StorageAccount:
    """Start or find the account that `AzureWebJobsStorage` names.

    Args:
        environ: App settings; those that ask for development storage get the emulator's connection string,
            because an SDK takes them to mean the well-known ports and key.
        data: For the emulator's files, and its connection string.
        choice: Where an emulator may listen.
        join: Use the emulator that already listens on the preferred ports instead of starting one.

    Raises:
        CannotStartError: The emulator cannot be started, there is none to join, or it has another key.
    """
    if not _asks_for_an_emulator(STORAGE.get(environ)):
        data.storage_connection.unlink(missing_ok=True)
        return StorageAccount("external", {})
    preferred, key = ports_from(environ), key_from(environ)
    if join:
        account, connection = await _joined(preferred, key or WELL_KNOWN_KEY)
    else:
        account, connection = await _started(
            Azurite(data.azurite, preferred, _choice(environ, choice), key=key)
        )
    write_private(data.storage_connection, connection)
    asking = [name for name, value in environ.items() if _asks_for_an_emulator(value)]
    environ.update(dict.fromkeys((STORAGE.name, *asking), connection))
    return account


def _choice(environ: Mapping[str, str], choice: PortChoice) -> PortChoice:
    """Return where an emulator may listen: ports that are set are taken, or nothing is."""
    are_set = any(environ.get(each.name) for each in (BLOB_PORT, QUEUE_PORT, TABLE_PORT))
    return PortChoice.FIXED if are_set and choice is PortChoice.AUTO else choice


async def _started(emulator: Azurite) -> tuple[StorageAccount, str]:
    await emulator.start()
    return StorageAccount("own", emulator.ports.endpoints, emulator), emulator.connection_string


async def _joined(ports: StoragePorts, key: str) -> tuple[StorageAccount, str]:
    if not ports.all_answer():
        raise CannotStartError(
            f"no storage emulator to join on ports {ports}; start one with `onebox storage`"
        )
    connection = ports.connection_with(key)
    if not await asyncio.to_thread(_takes_the_key, connection):
        raise CannotStartError(
            f"the storage emulator on ports {ports} refuses the key: set {STORAGE.name} to what "
            f"`onebox storage` has printed, or {ACCOUNTS.name} for both"
        )
    _LOG.warning("joined the storage emulator on ports %s: its queues and tables are shared", ports)
    return StorageAccount("joined", ports.endpoints), connection


def _takes_the_key(connection: str) -> bool:
    try:
        with QueueServiceClient.from_connection_string(connection, retry_total=0) as client:
            client.get_service_properties()
    except AzureError:
        return False
    return True


def _asks_for_an_emulator(value: str) -> bool:
    return value.strip().rstrip(";") == DEVELOPMENT_STORAGE


def storage_lines(account: StorageAccount) -> Iterator[str]:
    """Yield a line per endpoint, or one for an external account."""
    if account.kind == "external":
        yield "the account in AzureWebJobsStorage"
    note = " (joined: it belongs to another process)" if account.kind == "joined" else ""
    for name, url in account.endpoints.items():
        yield f"{name} {url}{note}"
