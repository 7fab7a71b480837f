"""The storage emulator's loopback ports, with the endpoints, connection string and options made of them."""

import base64
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from onebox import CannotStartError
from onebox.environment import ACCOUNTS, BLOB_PORT, HIGHEST_PORT, QUEUE_PORT, TABLE_PORT, Variable
from onebox.numbers import plain_number

LOOPBACK = "127.0.0.1"
ACCOUNT = "devstoreaccount1"
WELL_KNOWN_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key that every emulator has unless it is given another: public, so no protection."""
_KEEP_ALIVE_SECONDS = 130
"""Longer than clients keep idle connections. After Azurite's own 5 s a client may take a connection from its
pool just as Azurite closes it, and a POST is not sent again."""


@dataclass(frozen=True)
class StoragePorts:
    """The loopback ports of the emulator's three services."""

    blob: int = int(BLOB_PORT.default)
    queue: int = int(QUEUE_PORT.default)
    table: int = int(TABLE_PORT.default)

    @property
    def connection_string(self) -> str:
        """What a storage SDK needs to reach an emulator on these ports that has the well-known key."""
        return self.connection_with(WELL_KNOWN_KEY)

    def connection_with(self, key: str) -> str:
        """Return what a storage SDK needs to reach an emulator on these ports whose account has this key."""
        endpoints = "".join(f"{name.title()}Endpoint={url};" for name, url in self.endpoints.items())
        return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};{endpoints}"

    @property
    def options(self) -> list[str]:
        """The emulator's command line: these ports, and the options that every start has."""
        pairs: dict[str, str] = {}
        for name, port in (("blob", self.blob), ("queue", self.queue), ("table", self.table)):
            pairs |= {f"--{name}Host": LOOPBACK, f"--{name}Port": str(port)}
            pairs |= {f"--{name}KeepAliveTimeout": str(_KEEP_ALIVE_SECONDS)}
        options = [text for pair in pairs.items() for text in pair]
        return [*options, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]

    def all_answer(self) -> bool:
        """Return whether something listens on each of the ports."""
        return all(_listens(port) for port in (self.blob, self.queue, self.table))

    @property
    def endpoints(self) -> Mapping[str, str]:
        """The URL of each service."""
        services = {"blob": self.blob, "queue": self.queue, "table": self.table}
        return {name: f"http://{LOOPBACK}:{port}/{ACCOUNT}" for name, port in services.items()}

    def __str__(self) -> str:
        """Return the port numbers as a person reads them."""
        return f"{self.blob}, {self.queue}, {self.table}"

    def taken(self) -> list[int]:
        """Return the ports on which something listens."""
        return [port for port in (self.blob, self.queue, self.table) if _listens(port)]


def ports_from(settings: Mapping[str, str]) -> StoragePorts:
    """Return the well-known ports, unless AZURITE_BLOB_PORT, _QUEUE_PORT or _TABLE_PORT are set.

    Raises:
        CannotStartError: One of them is not the number of a port.
    """
    return StoragePorts(*(_port_from(each, settings) for each in (BLOB_PORT, QUEUE_PORT, TABLE_PORT)))


def _port_from(variable: Variable, settings: Mapping[str, str]) -> int:
    text = variable.get(settings)
    number = plain_number(text)
    if number is None or not 0 < number <= HIGHEST_PORT:
        raise CannotStartError(f"{variable.name} must be a number from 1 to {HIGHEST_PORT}, not {text!r}")
    return number


def key_from(settings: Mapping[str, str]) -> str | None:
    """Return the account's key that AZURITE_ACCOUNTS sets; None when it is not set.

    Raises:
        CannotStartError: It names no key for the account, or one that is not base64.
    """
    text = ACCOUNTS.get(settings)
    if not text:
        return None
    accounts = (each.strip().split(":") for each in text.split(";"))
    for name, *keys in accounts:
        if name == ACCOUNT and keys and _is_base64(keys[0]):
            return keys[0]
    raise CannotStartError(f"{ACCOUNTS.name} must be {ACCOUNT}:KEY, with the key in base64")


def _is_base64(key: str) -> bool:
    try:
        return bool(base64.b64decode(key, validate=True))
    except ValueError:
        return False


def free_ports() -> StoragePorts:
    """Return three ports that are free now; they are held together, so that they differ."""
    sockets = [socket.socket() for _ in range(3)]
    try:
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return StoragePorts(*(each.getsockname()[1] for each in sockets))
    finally:
        for each in sockets:
            each.close()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0
