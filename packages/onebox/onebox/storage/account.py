"""The storage account of an app: an emulator of its own, one that is joined, or an external account."""

import logging
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onebox import CannotStartError
from onebox.environment import BLOB_PORT, DEVELOPMENT_STORAGE, QUEUE_PORT, STORAGE, TABLE_PORT
from onebox.storage.azurite import Azurite, PortChoice
from onebox.storage.ports import StoragePorts, ports_from

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

    async def stop(self) -> None:
        """Stop the emulator if it was started here."""
        if self.emulator is not None:
            await self.emulator.stop()


async def open_account(
    environ: MutableMapping[str, str], folder: Path, choice: PortChoice, *, join: bool
) -> StorageAccount:
    """Start or find the account that `AzureWebJobsStorage` names.

    Args:
        environ: App settings; gets the connection string of an emulator that is not on the well-known ports,
            because an SDK takes development storage to mean those.
        folder: For the emulator's files.
        choice: Where an emulator may listen.
        join: Use the emulator that already listens on the preferred ports instead of starting one.

    Raises:
        CannotStartError: The emulator cannot be started, or there is none to join.
    """
    if STORAGE.get(environ).strip().rstrip(";") != DEVELOPMENT_STORAGE:
        return StorageAccount("external", {})
    preferred = ports_from(environ)
    if join:
        return _joined(environ, preferred)
    if choice is PortChoice.AUTO and _ports_are_set(environ):
        choice = PortChoice.FIXED
    emulator = Azurite(folder, preferred, choice)
    await emulator.start()
    _publish(environ, emulator.ports)
    return StorageAccount("own", emulator.ports.endpoints, emulator)


def _joined(environ: MutableMapping[str, str], ports: StoragePorts) -> StorageAccount:
    if not ports.all_answer():
        raise CannotStartError(
            f"no storage emulator to join on ports {ports}; start one with `onebox storage`"
        )
    _LOG.warning("joined the storage emulator on ports %s: its queues and tables are shared", ports)
    _publish(environ, ports)
    return StorageAccount("joined", ports.endpoints)


def _ports_are_set(environ: Mapping[str, str]) -> bool:
    return any(environ.get(each.name) for each in (BLOB_PORT, QUEUE_PORT, TABLE_PORT))


def _publish(environ: MutableMapping[str, str], ports: StoragePorts) -> None:
    if ports != StoragePorts():
        environ[STORAGE.name] = ports.connection_string


def storage_lines(account: StorageAccount) -> Iterator[str]:
    """Yield a line per endpoint, or one for an external account."""
    if account.kind == "external":
        yield "the account in AzureWebJobsStorage"
    note = " (joined: it belongs to another process)" if account.kind == "joined" else ""
    for name, url in account.endpoints.items():
        yield f"{name} {url}{note}"
