"""Functions with a storage-queue trigger: what they receive, and the listener that runs each of them."""

import json
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from azure.storage.queue import QueueMessage
from azure_functions_runtime.bindings.datumdef import Datum

from onebox.app_settings import AppSettings
from onebox.clock import Clock
from onebox.errors import CannotStartError
from onebox.faults import HostFaults
from onebox.host_json import Queues
from onebox.storage.queues import StorageQueues
from onebox.triggers.queue_listener import Handler, QueueListener, poison_name
from onebox.worker.durable import BindingInputs
from onebox.worker.expressions import values_of
from onebox.worker.functions import QUEUE_TRIGGER, Catalogue, Function
from onebox.worker.outputs import Outputs
from onebox.worker.runner import Runner, json_datum, text_datum

_DEFAULT_LIFE = timedelta(days=7)


def body_datum(body: bytes) -> Any:
    """Return the trigger's data: text when the body is UTF-8, else bytes."""
    try:
        return text_datum(body.decode())
    except UnicodeDecodeError:
        return Datum(body, "bytes")


def metadata_of(message: QueueMessage, body: bytes) -> Mapping[str, Any]:
    """Return the trigger metadata of a received message."""
    return _metadata(
        body,
        message_id=message.id,
        dequeue_count=message.dequeue_count or 0,
        pop_receipt=message.pop_receipt or "",
        inserted=message.inserted_on,
        expires=message.expires_on,
        visible=message.next_visible_on,
    )


def manual_metadata(text: str, now: datetime) -> Mapping[str, Any]:
    """Return the trigger metadata of a message that never was in a queue."""
    message_id = str(uuid.uuid4())
    return _metadata(
        text.encode(),
        message_id=message_id,
        dequeue_count=1,
        pop_receipt="",
        inserted=now,
        expires=now + _DEFAULT_LIFE,
        visible=now,
    )


def _metadata(
    body: bytes,
    *,
    message_id: str,
    dequeue_count: int,
    pop_receipt: str,
    inserted: datetime | None,
    expires: datetime | None,
    visible: datetime | None,
) -> dict[str, Any]:
    instants = {"InsertionTime": inserted, "ExpirationTime": expires, "NextVisibleTime": visible}
    return {
        **_properties(body),
        "QueueTrigger": body_datum(body),
        "Id": text_datum(message_id),
        "DequeueCount": json_datum(str(dequeue_count)),
        "PopReceipt": text_datum(pop_receipt),
        **{
            name: json_datum(json.dumps(each.isoformat()))
            for name, each in instants.items()
            if each is not None
        },
    }


def _properties(body: bytes) -> dict[str, Any]:
    """Return the top-level properties of a JSON body; the host offers them to binding expressions."""
    try:
        content = json.loads(body)
    except ValueError:
        return {}
    if not isinstance(content, dict):
        return {}
    return {name: json_datum(json.dumps(value)) for name, value in content.items()}


def queue_listeners(
    catalogue: Catalogue,
    queues: Queues,
    *,
    settings: AppSettings,
    storage: StorageQueues,
    runner: Runner,
    inputs: BindingInputs,
    outputs: Outputs,
    clock: Clock,
    draw: Callable[[], float],
    faults: HostFaults,
) -> tuple[QueueListener, ...]:
    """Return a listener per queue trigger, not started.

    Raises:
        CannotStartError: A binding names no queue, a setting that is missing, or a broken connection string.
    """

    def listener(function: Function) -> QueueListener:
        where = f"function {function.name}"
        name = settings.expand(function.trigger.text("queueName") or "", where=where).lower()
        connection = settings.connection(function.trigger.text("connection"), where=where)
        handler = _handler(function, runner, inputs, outputs)
        poison = poison_name(name)
        try:
            queue = storage.open(connection, name)
            poison_queue = None if poison is None else storage.open(connection, poison)
        except ValueError as mistake:
            raise CannotStartError(f"{where}: {mistake}") from None
        return QueueListener(queue, poison_queue, queues, handler, clock, draw=draw, faults=faults)

    return tuple(listener(each) for each in catalogue.with_trigger(QUEUE_TRIGGER))


def _handler(function: Function, runner: Runner, inputs: BindingInputs, outputs: Outputs) -> Handler:
    async def handle(message: QueueMessage, body: bytes) -> None:
        values = [(function.trigger.name, body_datum(body)), *inputs.of(function)]
        reason = f"message {message.id}, received {message.dequeue_count} times"
        metadata = metadata_of(message, body)
        result = await runner.run(function, values, metadata, reason=reason)
        await outputs.send(function, result, values_of(metadata))

    return handle
