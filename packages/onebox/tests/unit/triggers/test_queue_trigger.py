"""The listener on a queue in memory and a clock of ours; the same on Azurite is an integration test."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import cast

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.functions.queue import QueueMessageInConverter
from azure.storage.queue import QueueMessage

from onebox.clock import ManualClock
from onebox.host_json import Queues
from onebox.storage.queues import MessageLostError, StorageQueue, UndecodableError, decode, encode
from onebox.triggers.queue_message import body_datum, metadata_of
from onebox.triggers.queue_trigger import HIDDEN_SECONDS, QueueListener, poison_name


class QueueInMemory:
    """Records what is done to messages; a message is received once, unless it is put again."""

    def __init__(self, name: str = "work") -> None:
        self.name = name
        self.waiting: list[QueueMessage] = []
        self.log: list[tuple[str, ...]] = []
        self.receipts = 0
        self.look: Callable[[], None] = lambda: None
        self.is_missing = False

    def watch(self, look: Callable[[], None]) -> None:
        self.look = look

    def add(self, message_id: str, body: str, *, dequeue_count: int = 1) -> None:
        message = QueueMessage(content=base64.b64encode(body.encode()).decode())
        message.id, message.pop_receipt, message.dequeue_count = message_id, "first", dequeue_count
        self.waiting.append(message)

    async def create(self) -> None:
        self.log.append(("create",))

    async def receive(self, count: int, hidden_seconds: int) -> list[QueueMessage]:
        assert hidden_seconds == HIDDEN_SECONDS
        if self.is_missing:
            raise ResourceNotFoundError("The specified queue does not exist.")
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    async def put(self, content: str) -> None:
        self.log.append(("put", base64.b64decode(content).decode()))

    async def delete(self, message: QueueMessage) -> None:
        if message.pop_receipt == "lost":
            raise MessageLostError
        self.log.append(("delete", str(message.id), str(message.pop_receipt)))

    async def hide(self, message: QueueMessage, seconds: int) -> None:
        self.receipts += 1
        message.pop_receipt = f"receipt {self.receipts}"
        self.log.append(("hide", str(message.id), str(seconds)))


class Bench:
    """A listener with all around it."""

    def __init__(
        self, handler: Callable[[QueueMessage, bytes], Awaitable[None]], *, poison: bool = True
    ) -> None:
        self.clock = ManualClock()
        self.queue = QueueInMemory()
        self.poison = QueueInMemory("work-poison")
        settings = Queues.model_validate(
            {"batchSize": 2, "visibilityTimeout": "00:00:30", "maxDequeueCount": 3}
        )
        self.listener = QueueListener(
            cast("StorageQueue", self.queue),
            cast("StorageQueue", self.poison) if poison else None,
            settings,
            handler,
            self.clock,
            draw=lambda: 0.5,
        )

    async def settle(self) -> None:
        """Lets everything run that can run at the present instant."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def until_idle(self) -> None:
        self.listener.start()
        await self.settle()
        await self.listener.stop(1)


async def succeeds(_: QueueMessage, __: bytes) -> None:
    return


async def fails(_: QueueMessage, __: bytes) -> None:
    raise RuntimeError("no")


async def test_success_deletes() -> None:
    bench = Bench(succeeds)
    bench.queue.add("m", "x")
    await bench.until_idle()
    assert bench.queue.log == [("delete", "m", "first")]


@pytest.mark.shows("R8")
async def test_failure_shows_the_message_again_after_the_visibility_timeout() -> None:
    bench = Bench(fails)
    bench.queue.add("m", "x", dequeue_count=2)
    await bench.until_idle()
    assert bench.queue.log == [("hide", "m", "30")]


async def test_the_last_failure_moves_to_the_poison_queue_copy_first() -> None:
    bench = Bench(fails)
    bench.queue.add("m", "x", dequeue_count=3)
    await bench.until_idle()
    assert bench.poison.log == [("create",), ("put", "x")]
    assert bench.queue.log == [("delete", "m", "first")]


async def test_a_message_received_too_often_moves_without_a_run() -> None:
    bench = Bench(fails)
    bench.queue.add("m", "x", dequeue_count=4)
    await bench.until_idle()
    assert bench.poison.log == [("create",), ("put", "x")]


async def test_without_a_poison_queue_a_failed_message_stays_hidden() -> None:
    bench = Bench(fails, poison=False)
    bench.queue.add("m", "x", dequeue_count=9)
    await bench.until_idle()
    assert bench.queue.log == []


async def test_without_a_poison_queue_a_message_runs_maxdequeuecount_times_and_never_again() -> None:
    runs: list[str] = []

    async def counts(message: QueueMessage, _: bytes) -> None:
        runs.append(str(message.id))

    bench = Bench(counts, poison=False)
    bench.queue.add("last", "x", dequeue_count=3)
    bench.queue.add("over", "x", dequeue_count=4)
    await bench.until_idle()
    assert runs == ["last"]
    assert bench.queue.log == [("delete", "last", "first")]


@pytest.mark.shows("H11")
async def test_a_queue_that_is_missing_is_said_once_and_read_once_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(succeeds)
    bench.queue.is_missing = True
    bench.listener.start()
    for _ in range(3):
        bench.clock.advance(timedelta(minutes=5))
        await bench.settle()
    assert caplog.text.count("queue work does not exist and its trigger does not create it") == 1
    bench.queue.is_missing = False
    bench.queue.add("m", "x")
    bench.clock.advance(timedelta(minutes=5))
    await bench.settle()
    await bench.listener.stop(1)
    assert bench.queue.log == [("delete", "m", "first")]


async def test_a_long_run_is_hidden_anew_every_five_minutes_and_deleted_by_its_last_receipt() -> None:
    go_on = asyncio.Event()

    async def waits(_: QueueMessage, __: bytes) -> None:
        await go_on.wait()

    bench = Bench(waits)
    bench.queue.add("m", "x")
    bench.listener.start()
    await bench.settle()
    for _ in range(2):
        bench.clock.advance(timedelta(minutes=5))
        await bench.settle()
    go_on.set()
    await bench.settle()
    await bench.listener.stop(1)
    hidden = ("hide", "m", "600")
    assert bench.queue.log == [hidden, hidden, ("delete", "m", "receipt 2")]


async def test_the_next_batch_waits_until_few_enough_run() -> None:
    released = asyncio.Semaphore(0)
    begun: list[str] = []

    async def waits(message: QueueMessage, _: bytes) -> None:
        begun.append(str(message.id))
        await released.acquire()

    bench = Bench(waits)
    for number in range(5):
        bench.queue.add(str(number), "x")
    bench.listener.start()
    await bench.settle()
    assert begun == ["0", "1"]  # a batch of two; the threshold is one
    released.release()
    await bench.settle()
    assert begun == ["0", "1", "2", "3"]
    for _ in range(4):
        released.release()
    await bench.settle()
    assert begun == ["0", "1", "2", "3", "4"]
    await bench.listener.stop(1)


async def test_a_stop_gives_back_what_does_not_finish() -> None:
    async def hangs(_: QueueMessage, __: bytes) -> None:
        await asyncio.Event().wait()

    bench = Bench(hangs)
    bench.queue.add("m", "x")
    bench.listener.start()
    await bench.settle()
    await bench.listener.stop(0.01)
    assert bench.queue.log == [("hide", "m", "0")]


async def test_a_message_that_somebody_else_took_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def loses(message: QueueMessage, _: bytes) -> None:
        message.pop_receipt = "lost"

    bench = Bench(loses)
    bench.queue.add("m", "x")
    await bench.until_idle()
    assert "taken by somebody else" in caplog.text


async def test_a_notification_ends_the_pause_of_an_empty_queue() -> None:
    bench = Bench(succeeds)
    bench.listener.start()
    await bench.settle()
    bench.queue.add("m", "x")
    bench.queue.look()
    await bench.settle()
    assert ("delete", "m", "first") in bench.queue.log
    await bench.listener.stop(1)


async def test_an_error_of_the_storage_is_logged_once_and_outlived(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(succeeds)
    receive, errors = bench.queue.receive, [OSError("away"), ValueError("odd")]

    async def fails_first(count: int, hidden_seconds: int) -> list[QueueMessage]:
        if errors:
            raise errors.pop()
        return await receive(count, hidden_seconds)

    bench.queue.receive = fails_first  # type: ignore[method-assign] # the storage is away for a while
    bench.queue.add("m", "x")
    bench.listener.start()
    for _ in range(3):
        await bench.settle()
        bench.clock.advance(timedelta(seconds=2))
    await bench.settle()
    await bench.listener.stop(1)
    assert ("delete", "m", "first") in bench.queue.log
    assert caplog.text.count("cannot be read") == 1


async def test_an_error_after_another_trouble_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(succeeds)
    errors = [ResourceNotFoundError("no such queue"), OSError("away"), OSError("still away")]

    async def fails(count: int, hidden_seconds: int) -> list[QueueMessage]:  # noqa: ARG001 # the queue's own
        raise errors.pop(0)

    bench.queue.receive = fails  # type: ignore[method-assign] # created while the storage is away
    bench.listener.start()
    for _ in range(2):
        await bench.settle()
        bench.clock.advance(timedelta(seconds=2))
    await bench.settle()
    await bench.listener.stop(1)
    assert "queue work does not exist" in caplog.text
    assert "queue work cannot be read, will go on trying: away" in caplog.text
    assert "still away" not in caplog.text


@pytest.mark.shows("R7")
async def test_a_storage_that_stays_away_is_asked_later_each_time() -> None:
    bench = Bench(succeeds)
    asked: list[float] = []
    began = bench.clock.now()

    async def fails(count: int, hidden_seconds: int) -> list[QueueMessage]:  # noqa: ARG001 # the queue's own
        asked.append((bench.clock.now() - began).total_seconds())
        raise OSError("away")

    bench.queue.receive = fails  # type: ignore[method-assign] # the storage is away
    bench.listener.start()
    for _ in range(100):
        await bench.settle()
        bench.clock.advance(timedelta(milliseconds=50))
    await bench.listener.stop(1)
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.3
    assert pauses[-1] >= 1.5


@pytest.mark.shows("H12")
def test_poison_queues_have_none_themselves() -> None:
    assert poison_name("work") == "work-poison"
    assert poison_name("work-poison") is None
    assert poison_name("x" * 57) is None


@pytest.mark.parametrize("encoding", ["base64", "none"])
def test_what_is_encoded_is_decoded(encoding: str) -> None:
    assert decode(encode("héllo".encode(), encoding), encoding) == "héllo".encode()  # type: ignore[arg-type] # parametrized


@pytest.mark.parametrize("content", ["{}", "abc", "a!==", "é"])
def test_what_is_not_base64_is_refused(content: str) -> None:
    with pytest.raises(UndecodableError):
        decode(content, "base64")


def test_the_function_gets_a_whole_queue_message() -> None:
    message = QueueMessage(content="ignored")
    message.id, message.pop_receipt, message.dequeue_count = "m-1", "receipt", 3
    message.inserted_on = datetime(2026, 11, 21, 10, tzinfo=UTC)
    message.expires_on = datetime(2026, 11, 28, 10, tzinfo=UTC)
    message.next_visible_on = datetime(2026, 11, 21, 10, 10, 0, 5, tzinfo=UTC)
    body = b'{"Id": "of the body"}'
    given = QueueMessageInConverter.decode(body_datum(body), trigger_metadata=metadata_of(message, body))
    assert (given.id, given.pop_receipt, given.dequeue_count) == ("m-1", "receipt", 3)
    assert given.insertion_time == message.inserted_on
    assert given.expiration_time == message.expires_on
    assert given.time_next_visible == message.next_visible_on
    assert given.get_json() == {"Id": "of the body"}


def test_a_body_that_is_no_text_stays_bytes() -> None:
    assert (body_datum(b"\xff").type, body_datum(b"\xff").value) == ("bytes", b"\xff")
