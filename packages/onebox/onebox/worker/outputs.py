"""Output bindings: sends the values that a function sets to queues and blobs.

Source: "Azure Functions binding expression patterns", Microsoft Learn.
"""

import json
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

from onebox.clock import Clock
from onebox.environment import AppSettings
from onebox.host_json import Queues
from onebox.storage.blobs import BlobAccount, Blobs
from onebox.storage.queues import StorageQueues, encode
from onebox.worker.functions import Binding, Function
from onebox.worker.runner import Failure, FunctionFailedError, Result

_LOG = logging.getLogger("onebox.functions")

# Called with the binding, its data, and values for its expressions; raises when it cannot send.
Sender = Callable[[Binding, Any, Mapping[str, str]], Awaitable[None]]

# Bindings whose value is the invocation's answer: whoever invoked the function takes it.
_ANSWERS = {"http"}
_EXPRESSION = re.compile(r"\{([^{}]+)\}")


class Outputs:
    """The output bindings that onebox can serve, by type."""

    def __init__(self, senders: Mapping[str, Sender]) -> None:
        self._senders = senders

    @property
    def types(self) -> Collection[str]:
        """The bindings that a function may have as outputs."""
        return {*self._senders, *_ANSWERS}

    async def send(self, function: Function, result: Result, values: Mapping[str, str] | None = None) -> None:
        """Send every output that the function set; as in the host, the run fails when one cannot be sent.

        Args:
            function: The function that has the outputs.
            result: What it returned.
            values: Values for expressions in the bindings, by lower-case name; None for none.

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
    """An expression has a name that the trigger does not offer."""


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
    """Yield the bodies of an output's messages: one per item of a list, else a single one."""
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
