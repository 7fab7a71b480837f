"""Output bindings: what a function puts into them goes to queues and blobs.

Sources: "Azure Functions binding expression patterns", Microsoft Learn; "Put Blob" and "Authorize with Shared
Key", Azure Storage REST reference.
"""

import base64
import hashlib
import hmac
import json
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from onebox.clock import Clock
from onebox.environment import DEVELOPMENT_STORAGE, AppSettings
from onebox.host_json import Queues
from onebox.storage.azurite import StoragePorts
from onebox.storage.queues import StorageQueues, encode
from onebox.worker.functions import Binding, Function
from onebox.worker.runner import Failure, FunctionFailedError, Result

_LOG = logging.getLogger("onebox.functions")

# Takes the binding, its data, and what expressions in it may name; raises anything when it cannot be sent.
Sender = Callable[[Binding, Any, Mapping[str, str]], Awaitable[None]]

# Bindings whose value is the invocation's answer: whoever invoked the function takes it.
_ANSWERS = {"http"}
_EXPRESSION = re.compile(r"\{([^{}]+)\}")
_BLOB_API_VERSION = "2023-11-03"
_BLOB_TIMEOUT_SECONDS = 60.0


class Outputs:
    """The output bindings that onebox can serve, by type."""

    def __init__(self, senders: Mapping[str, Sender]) -> None:
        self._senders = senders

    @property
    def types(self) -> Collection[str]:
        """Which bindings a function may have as outputs."""
        return {*self._senders, *_ANSWERS}

    async def send(self, function: Function, result: Result, values: Mapping[str, str] | None = None) -> None:
        """Send every output that the function set; as in the host, the run fails when one cannot be sent.

        Args:
            function: Whose outputs.
            result: What it returned.
            values: What expressions in the bindings may name, lower case; None for nothing.

        Raises:
            FunctionFailedError: A binding is not served, or its service refused.
        """
        for binding in function.outputs:
            datum = result.returned if binding.name == "$return" else result.outputs.get(binding.name)
            if binding.type not in _ANSWERS and datum is not None and datum.value is not None:
                await self._send_one(function, binding, datum, values or {})

    async def _send_one(
        self, function: Function, binding: Binding, datum: Any, values: Mapping[str, str]
    ) -> None:
        where = f"{function.name}, output {binding.name}"
        sender = self._senders.get(binding.type)
        if sender is None:
            raise _failed("NotSupportedException", f"{where}: onebox has no output of type {binding.type!r}")
        try:
            await sender(binding, datum, values)
        except Exception as error:
            raise _failed(type(error).__name__, f"{where}: {error}") from error


def _failed(error_type: str, message: str) -> FunctionFailedError:
    _LOG.error("%s", message)  # the run was logged as succeeded before its outputs were sent
    return FunctionFailedError(Failure(error_type, message, message))


class ExpressionError(ValueError):
    """An expression names something that the trigger does not offer."""


def expand(text: str, values: Mapping[str, str], now: datetime) -> str:
    """Replace every `{name}`.

    Args:
        text: As written in a binding, app settings already expanded.
        values: What the trigger offers, by lower-case name.
        now: For `{DateTime}`.

    Raises:
        ExpressionError: A name is not offered.
    """

    def value_of(match: re.Match[str]) -> str:
        name = match[1].strip().lower()
        if name in {"rand-guid", "sys.randguid"}:
            return str(uuid.uuid4())
        if name in {"datetime", "sys.utcnow"}:
            return now.strftime("%Y-%m-%dT%H-%M-%SZ")
        if name not in values:
            raise ExpressionError(f"{text!r}: the trigger offers no {{{match[1]}}}")
        return values[name]

    return _EXPRESSION.sub(value_of, text)


def values_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return a trigger's metadata (a Datum per name) as expressions see it."""
    return {name.lower(): _text(datum) for name, datum in metadata.items()}


def _text(datum: Any) -> str:
    if datum.type != "json":
        return str(datum.value)
    value = json.loads(datum.value)
    return value if isinstance(value, str) else datum.value


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
        self._client = httpx.AsyncClient(timeout=_BLOB_TIMEOUT_SECONDS, trust_env=False)

    async def put(self, account: BlobAccount, path: str, content: bytes) -> None:
        """Write a block blob, over what may be there; its container is made when it is missing.

        Args:
            account: Which account.
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
    own = {**headers, "x-ms-date": format_datetime(now, usegmt=True), "x-ms-version": _BLOB_API_VERSION}
    length = str(len(content)) if content else ""
    standard = [method, "", "", length, "", "", "", "", "", "", "", ""]
    canonical_headers = [f"{name}:{own[name]}" for name in sorted(own)]
    parts = urlsplit(url)
    query = [pair.replace("=", ":", 1) for pair in sorted(parts.query.split("&")) if pair]
    text = "\n".join([*standard, *canonical_headers, f"/{account.name}{parts.path}", *query])
    digest = hmac.new(base64.b64decode(account.key), text.encode(), hashlib.sha256).digest()
    return {**own, "Authorization": f"SharedKey {account.name}:{base64.b64encode(digest).decode()}"}


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
