"""Azure storage blobs, written over one HTTP client.

Source: "Put Blob" and "Create Container", Azure Storage REST reference.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from types import MappingProxyType
from typing import Final
from urllib.parse import quote, urlsplit

import httpx

from onebox.clock import Clock
from onebox.environment import DEVELOPMENT_STORAGE
from onebox.storage.ports import StoragePorts
from onebox.storage.shared_key import SharedKey

_API_VERSION: Final = "2023-11-03"
_TIMEOUT_SECONDS: Final = 60.0


class BlobError(Exception):
    """The blob could not be written; the message has the service's answer."""


@dataclass(frozen=True)
class BlobAccount:
    """Where an account's blobs are and the key that opens it."""

    name: str
    key: str
    endpoint: str

    @classmethod
    def from_connection_string(cls, connection: str) -> "BlobAccount":
        """Read a connection string with an account key.

        Raises:
            ValueError: It has no account name or key.
        """
        if connection.strip().rstrip(";") == DEVELOPMENT_STORAGE:
            connection = StoragePorts().connection_string
        parts = dict(part.split("=", 1) for part in connection.split(";") if "=" in part)
        try:
            name, key = parts["AccountName"], parts["AccountKey"]
        except KeyError as missing:
            raise ValueError(f"the connection string has no {missing.args[0]}") from None
        protocol, suffix = parts.get("DefaultEndpointsProtocol", "https"), parts.get("EndpointSuffix")
        usual = f"{protocol}://{name}.blob.{suffix or 'core.windows.net'}"
        return cls(name, key, parts.get("BlobEndpoint", usual).rstrip("/"))


class Blobs:
    """Writes blobs over one HTTP client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._client = httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False)

    async def put(self, account: BlobAccount, path: str, content: bytes) -> None:
        """Write a block blob, over what may be there; its container is made when it is missing.

        Args:
            account: The account that is meant.
            path: `container/name`, the name with slashes if need be.
            content: All of it.

        Raises:
            BlobError: The service refuses or cannot be reached.
        """
        container, _, name = path.strip("/").partition("/")
        if not name:
            raise BlobError(f"{path!r} is no container/name")
        url = f"{account.endpoint}/{quote(container)}/{quote(name)}"
        answer = await self._send(account, url, content, {"x-ms-blob-type": "BlockBlob"})
        if answer.status_code == httpx.codes.NOT_FOUND:
            await self._send(account, f"{account.endpoint}/{quote(container)}?restype=container", b"", {})
            answer = await self._send(account, url, content, {"x-ms-blob-type": "BlockBlob"})
        if answer.is_error:
            raise BlobError(f"{path}: {answer.status_code} {answer.headers.get('x-ms-error-code', '')}")

    async def _send(
        self, account: BlobAccount, url: str, content: bytes, headers: Mapping[str, str]
    ) -> httpx.Response:
        signed = signed_headers(account, "PUT", url, content, headers, now=self._clock.now())
        try:
            return await self._client.put(url, content=content, headers=signed)
        except httpx.TransportError as error:
            raise BlobError(f"{url}: {error}") from None

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()


def signed_headers(
    account: BlobAccount,
    method: str,
    url: str,
    content: bytes = b"",
    headers: Mapping[str, str] = MappingProxyType({}),
    *,
    now: datetime,
) -> dict[str, str]:
    """Return the headers with the signature over them, the method, the length, the path and the query."""
    own = {**headers, "x-ms-date": format_datetime(now, usegmt=True), "x-ms-version": _API_VERSION}
    parts = urlsplit(url)
    query = [pair.replace("=", ":", 1) for pair in sorted(parts.query.split("&")) if pair]
    key = SharedKey(account.name, base64.b64decode(account.key))
    return {**own, "Authorization": key.authorization(method, parts.path, query, own, length=len(content))}
