"""Storage-queue triggers: a listener per function. Peek-lock, as in the host.

A message is hidden for ten minutes and hidden anew while it runs. Success deletes it. Failure shows it again
`visibilityTimeout` after the end of the run, until it was received `maxDequeueCount` times: then it moves to
`<queue>-poison`, which has no poison queue itself: what fails there so often is not delivered again. After a
crash at any point the message becomes visible again. A trigger does not create its queue.
Source: QueueListener and QueueProcessor of the WebJobs SDK's storage extension.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.storage.queue import QueueMessage

from onebox import CannotStartError
from onebox.clock import Clock
from onebox.environment import AppSettings
from onebox.faults import HostFaults, HostPoint, no_faults
from onebox.host_json import Queues
from onebox.storage.queues import MessageLostError, StorageQueue, StorageQueues, UndecodableError, decode
from onebox.triggers.queue_message import body_datum, metadata_of
from onebox.triggers.retrying import Backoff
from onebox.worker.durable import BindingInputs
from onebox.worker.functions import QUEUE_TRIGGER, Catalogue, Function
from onebox.worker.outputs import Outputs, values_of
from onebox.worker.runner import FunctionRunner

_LOG = logging.getLogger("onebox.queue")

HIDDEN_SECONDS = 600
_RENEW_AFTER = timedelta(seconds=HIDDEN_SECONDS / 2)
_LEAST_PAUSE = timedelta(milliseconds=100)
_POISON_SUFFIX = "-poison"
_LONGEST_NAME = 63
_MISSING = (  # as under the host
    "queue %s does not exist and its trigger does not create it; messages are taken as soon as somebody has "
    "created it"
)
_UNREADABLE = "queue %s cannot be read, will go on trying: %s"

# Runs the function for one message and its decoded body; any exception means that the run failed.
Handler = Callable[[QueueMessage, bytes], Awaitable[None]]


def poison_name(queue_name: str) -> str | None:
    """Return the poison queue's name; None for a poison queue, or when the name would be too long."""
    name = queue_name + _POISON_SUFFIX
    return None if queue_name.endswith(_POISON_SUFFIX) or len(name) > _LONGEST_NAME else name


class QueueListener:
    """Receives the messages of one queue and runs one function for each."""

    def __init__(
        self,
        queue: StorageQueue,
        poison: StorageQueue | None,
        settings: Queues,
        handler: Handler,
        clock: Clock,
        *,
        draw: Callable[[], float],
        faults: HostFaults = no_faults,
    ) -> None:
        self._queue = queue
        self._poison = poison
        self._settings = settings
        self._handler = handler
        self._clock = clock
        self._faults = faults
        self._backoff = Backoff(_LEAST_PAUSE, settings.max_polling_interval, draw)
        self._running: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._wake = asyncio.Event()
        self._stopping = False
        self._trouble = ""
        self._listening: asyncio.Task[None] | None = None

    @property
    def queue_name(self) -> str:
        """The name of the queue."""
        return self._queue.name

    def notify(self) -> None:
        """Poll now: this process has put a message into the queue."""
        self._backoff.begin_again()
        self._wake.set()

    def start(self) -> None:
        """Start polling."""
        self._queue.watch(self.notify)
        self._listening = asyncio.create_task(self._listen(), name=f"queue {self._queue.name}")

    async def _listen(self) -> None:
        while not self._stopping:
            if await self._fetch():
                self._backoff.begin_again()
                await self._room.wait()
            else:
                await self._pause(self._backoff.next_pause())

    async def stop(self, seconds: float) -> None:
        """Stop polling, wait `seconds` for running functions, cancel the others and show their messages."""
        self._stopping = True
        self._wake.set()
        self._room.set()
        if self._listening is not None:
            await asyncio.wait([self._listening], timeout=seconds)
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _fetch(self) -> bool:
        try:
            messages = await self._queue.receive(self._settings.batch_size, HIDDEN_SECONDS)
        except ResourceNotFoundError:
            self._warn_once(_MISSING)
            return False
        except Exception as error:  # noqa: BLE001 # the listener must survive any error to try again
            self._warn_once(_UNREADABLE, _first_line(error))
            return False
        self._trouble = ""
        if self._stopping:
            await asyncio.gather(*(self._abandon(message) for message in messages))
            return False
        for message in messages:
            task = asyncio.ensure_future(self._process(message))
            self._running.add(task)
            task.add_done_callback(self._finished)
        self._set_room()
        return bool(messages)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._set_room()
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("queue %s: a message is left to come back: %s", self._queue.name, error)

    def _set_room(self) -> None:
        if self._stopping or len(self._running) <= self._settings.fetch_at_most_running:
            self._room.set()
        else:
            self._room.clear()

    async def _pause(self, pause: timedelta) -> None:
        await self._clock.wait(self._clock.now() + pause, self._wake)
        if not self._stopping:
            self._wake.clear()

    def _warn_once(self, trouble: str, *details: str) -> None:
        """Warn of what keeps the queue from being read, unless it kept the last read from it, too."""
        if trouble != self._trouble:
            _LOG.warning(trouble, self._queue.name, *details)
        self._trouble = trouble

    async def _process(self, message: QueueMessage) -> None:
        self._faults(HostPoint.QUEUE_RECEIVED)
        if (message.dequeue_count or 0) > self._settings.max_dequeue_count:
            # Without a poison queue the host leaves it hidden, ten minutes each time, until it expires.
            await self._move_to_poison(message, f"was received {message.dequeue_count} times")
            return
        try:
            body = decode(message.content, self._settings.message_encoding)
        except UndecodableError:
            await self._move_to_poison(message, f"is not {self._settings.message_encoding}")
            return
        succeeded = await self._run(message, body)
        try:
            await (self._finish(message) if succeeded else self._give_back(message))
        except MessageLostError:
            _LOG.warning(
                "queue %s: message %s was taken by somebody else meanwhile", self._queue.name, message.id
            )

    async def _finish(self, message: QueueMessage) -> None:
        self._faults(HostPoint.QUEUE_RUN)
        await self._queue.delete(message)
        self._faults(HostPoint.QUEUE_DELETED)

    async def _run(self, message: QueueMessage, body: bytes) -> bool:
        """Run the function while the message stays hidden; return whether it succeeded."""
        ended = asyncio.Event()
        renewal = asyncio.ensure_future(self._keep_hidden(message, ended))
        try:
            await self._handler(message, body)
        except asyncio.CancelledError:
            await _end(renewal, ended)
            await self._abandon(message)
            raise
        except Exception:  # noqa: BLE001 # after any error the message must be given back
            await _end(renewal, ended)
            return False
        await _end(renewal, ended)
        return True

    async def _keep_hidden(self, message: QueueMessage, ended: asyncio.Event) -> None:
        due = self._clock.now() + _RENEW_AFTER
        while not ended.is_set():
            await self._clock.wait(due, ended)
            if ended.is_set() or self._clock.now() < due:
                continue
            try:
                await self._queue.hide(message, HIDDEN_SECONDS)
            except (MessageLostError, AzureError) as error:
                _LOG.warning(
                    "queue %s: message %s not renewed: %s", self._queue.name, message.id, _first_line(error)
                )
            due = self._clock.now() + _RENEW_AFTER

    async def _give_back(self, message: QueueMessage) -> None:
        # Without a poison queue the host leaves a failed message hidden: else it would fail in a tight loop.
        if self._poison is None:
            return
        if (message.dequeue_count or 0) >= self._settings.max_dequeue_count:
            await self._move_to_poison(message, f"failed {message.dequeue_count} times")
        else:
            await self._queue.hide(message, round(self._settings.visibility_timeout.total_seconds()))

    async def _abandon(self, message: QueueMessage) -> None:
        try:
            await self._queue.hide(message, 0)
        except (MessageLostError, AzureError) as error:
            _LOG.warning(
                "queue %s: message %s comes back later: %s", self._queue.name, message.id, _first_line(error)
            )

    async def _move_to_poison(self, message: QueueMessage, why: str) -> None:
        """Copy first, delete after: a crash in between leaves a duplicate and loses nothing."""
        if self._poison is None:
            return
        _LOG.warning(
            "queue %s: message %s %s; moved to %s", self._queue.name, message.id, why, self._poison.name
        )
        await self._poison.create()
        await self._poison.put(message.content)
        self._faults(HostPoint.QUEUE_POISONED)
        await self._queue.delete(message)


async def _end(renewal: asyncio.Future[None], ended: asyncio.Event) -> None:
    """Let the renewal end: cancelling a request under way could lose the new pop receipt."""
    ended.set()
    await renewal


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def queue_listeners(
    catalogue: Catalogue,
    queues: Queues,
    *,
    settings: AppSettings,
    storage: StorageQueues,
    runner: FunctionRunner,
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


def _handler(function: Function, runner: FunctionRunner, inputs: BindingInputs, outputs: Outputs) -> Handler:
    async def handle(message: QueueMessage, body: bytes) -> None:
        values = [(function.trigger.name, body_datum(body)), *inputs.of(function)]
        reason = f"message {message.id}, received {message.dequeue_count} times"
        metadata = metadata_of(message, body)
        result = await runner.run(function, values, metadata, reason=reason)
        await outputs.send(function, result, values_of(metadata))

    return handle
