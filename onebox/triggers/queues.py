"""Puts a listener on the queue of every queue-triggered function."""

from collections.abc import Callable

from azure.storage.queue import QueueMessage

from onebox.app_settings import AppSettings
from onebox.clock import Clock
from onebox.errors import CannotStartError
from onebox.faults import HostFaults
from onebox.host_json import Queues
from onebox.storage.queues import StorageQueues
from onebox.triggers.queue import Handler, QueueListener, poison_name
from onebox.triggers.queue_message import body_datum, metadata_of
from onebox.worker.durable import BindingInputs
from onebox.worker.expressions import values_of
from onebox.worker.functions import QUEUE_TRIGGER, Catalogue, Function
from onebox.worker.outputs import Outputs
from onebox.worker.runner import Runner


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
