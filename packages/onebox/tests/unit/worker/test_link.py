import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onebox.worker.link import Handler, Link, RefusedError, WorkerLostError


@asynccontextmanager
async def pair(
    handlers: Mapping[str, Handler], lost: list[str] | None = None
) -> AsyncIterator[tuple[Link, Link]]:
    """The two ends of a connection, of which the second answers."""
    loop = asyncio.get_running_loop()
    one, two = socket.socketpair()
    asking = Link({}, lambda: None if lost is None else lost.append("lost"))
    answering = Link(handlers)
    await loop.create_connection(lambda: asking, sock=one)
    await loop.create_connection(lambda: answering, sock=two)
    try:
        yield asking, answering
    finally:
        asking.cut()
        answering.cut()


async def echo(value: Any) -> Any:
    return value


async def test_a_value_arrives_as_it_was_sent() -> None:
    async with pair({"echo": echo}) as (asking, _):
        value = {
            "texts": ("ü", "half a pair \ud800"),
            "list": [1, None, True, 0.5],
            "bytes": [b"", b"\0" * 300_000, b"end"],
        }
        assert await asking.call("echo", value) == value
        assert await asking.call("echo") is None
        assert asking.waiting == 0


class Wire:
    """Stands in for a transport, and keeps what is written."""

    def __init__(self) -> None:
        self.sent = bytearray()

    def write(self, data: bytes) -> None:
        self.sent += data


@pytest.mark.parametrize("size", [1, 3, 7, 64, 10_000])
async def test_frames_are_understood_however_the_socket_cuts_them(size: int) -> None:
    there, back = Wire(), Wire()
    asking, answering = Link({}), Link({"echo": echo})
    asking.connection_made(there)
    answering.connection_made(back)
    given = ["", {"a": ["ü"], "b": [b"x" * 100, b"", b"y"]}, None, b"z"]
    calls = [asyncio.ensure_future(asking.call("echo", value)) for value in given]
    await asyncio.sleep(0)
    for sent, reader in ((there.sent, answering), (back.sent, asking)):
        for at in range(0, len(sent), size):
            reader.data_received(bytes(sent[at : at + size]))
    assert await asyncio.gather(*calls) == given


async def test_a_patient_method_begins_after_the_others_of_a_read() -> None:
    there, began = Wire(), list[str]()

    async def note(value: Any) -> None:
        began.append(value)

    asking, answering = Link({}), Link({"turn": note, "run": note}, patient={"turn"})
    asking.connection_made(there)
    answering.connection_made(Wire())
    calls = [asyncio.ensure_future(asking.call(name, name)) for name in ("turn", "run", "turn")]
    await asyncio.sleep(0)
    answering.data_received(bytes(there.sent))
    assert began == ["run"]
    await asyncio.sleep(0)
    assert began == ["run", "turn", "turn"]
    for call in calls:
        call.cancel()


async def test_a_patient_method_that_comes_alone_begins_at_once() -> None:
    there, back = Wire(), Wire()
    asking, answering = Link({}), Link({"turn": echo}, patient={"turn"})
    asking.connection_made(there)
    answering.connection_made(back)
    call = asyncio.ensure_future(asking.call("turn", "x"))
    await asyncio.sleep(0)
    answering.data_received(bytes(there.sent))
    asking.data_received(bytes(back.sent))
    assert await call == "x"


async def test_answers_come_in_any_order() -> None:
    first = asyncio.Event()

    async def waits(value: Any) -> Any:
        if value == "first":
            await first.wait()
        return value

    async with pair({"waits": waits}) as (asking, _):
        late = asyncio.ensure_future(asking.call("waits", "first"))
        assert await asking.call("waits", "second") == "second"
        assert asking.waiting == 1
        first.set()
        assert await late == "first"


async def test_many_calls_at_once_are_all_answered() -> None:
    async with pair({"echo": echo}) as (asking, _):
        answers = await asyncio.gather(*(asking.call("echo", (each, b"x" * each)) for each in range(500)))
        assert answers == [(each, b"x" * each) for each in range(500)]


async def test_a_refusal_carries_its_name_and_details() -> None:
    async def refuses(value: Any) -> Any:
        raise RefusedError("because", value)

    async with pair({"refuses": refuses}) as (asking, _):
        with pytest.raises(RefusedError) as refused:
            await asking.call("refuses", [1, "two"])
        assert (refused.value.name, refused.value.details) == ("because", [1, "two"])


async def test_any_other_error_is_a_refusal_too() -> None:
    async def fails(_: Any) -> Any:
        raise LookupError("not there")

    async def cannot_be_sent(_: Any) -> Any:
        return object()

    async def cannot_be_refused(_: Any) -> Any:
        raise RefusedError("because", object())

    handlers = {"fails": fails, "cannot": cannot_be_sent, "cannot refuse": cannot_be_refused}
    async with pair(handlers) as (asking, _):
        with pytest.raises(RefusedError, match="LookupError: not there"):
            await asking.call("fails")
        with pytest.raises(RefusedError, match="ValueError: unmarshallable object"):
            await asking.call("cannot")
        with pytest.raises(RefusedError, match="ValueError: unmarshallable object"):
            await asking.call("cannot refuse")
        with pytest.raises(RefusedError, match="KeyError: 'unknown'"):
            await asking.call("unknown")


async def test_a_caller_that_is_cancelled_cancels_the_work() -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def works(_: Any) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with pair({"works": works, "echo": echo}) as (asking, _):
        call = asyncio.ensure_future(asking.call("works"))
        await began.wait()
        call.cancel()
        await cancelled.wait()
        assert await asking.call("echo", 1) == 1
        assert call.cancelled()


async def test_whoever_waits_when_the_other_side_ends_gets_an_error() -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def works(_: Any) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    lost: list[str] = []
    async with pair({"works": works}, lost) as (asking, answering):
        call = asyncio.ensure_future(asking.call("works"))
        await began.wait()
        answering.cut()
        with pytest.raises(WorkerLostError):
            await call
        assert lost == ["lost"]
        await cancelled.wait()
        assert not asking.is_open
        with pytest.raises(WorkerLostError):
            await asking.call("works")


async def test_calls_that_are_abandoned_are_cancelled() -> None:
    began = asyncio.Event()

    async def works(_: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    async with pair({"works": works}) as (asking, _):
        call = asyncio.ensure_future(asking.call("works"))
        await began.wait()
        asking.abandon()
        with pytest.raises(asyncio.CancelledError):
            await call
