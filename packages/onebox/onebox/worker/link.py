"""Calls between the host and a worker process over a socket pair.

Both sides call and answer; answers come in any order. A frame is sent at once: the other end works while
this one goes on. Only what answers the frames of one read is sent with one write, which may wake the other
end. A frame has a JSON value, and parts of bytes, which are not encoded:

    4 bytes       length of what follows
    4 bytes       number of the call
    1 byte        kind
    4 bytes       length of the value
    4 bytes       how many parts
    4 bytes each  length of each part
    value         call: [method, value]; answer: value; refusal: [name, details]; nothing for None
    parts
"""

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final

from onebox.hub.invoker import InvocationLostError

_HEAD: Final = struct.Struct(">IIBII")
_LENGTH_BYTES: Final = 4
_HEAD_BYTES: Final = _HEAD.size - _LENGTH_BYTES
_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode
_DECODE: Final = json.JSONDecoder().raw_decode
_UNEXPECTED: Final = "unexpected"

type Content = tuple[Any, Sequence[bytes]]
"""A JSON value, and parts of bytes."""

type Handler = Callable[[Any, Sequence[bytes]], Awaitable[Content]]
"""Answers a call, or raises `RefusedError`."""


class WorkerLostError(InvocationLostError):
    """The process at the other end is gone; whether it did the work is unknown."""


class WorkerBlockedError(Exception):
    """The process at the other end answers nothing now, and the call may be made to another."""


class RefusedError(Exception):
    """The other side answered with an error.

    Attributes:
        name: The name of the error, see `wire`.
        details: A JSON value.
    """

    def __init__(self, name: str, details: Any = None) -> None:
        super().__init__(f"{name}: {details}")
        self.name = name
        self.details = details


# Kinds of frames.
_CALL: Final = 0
_ANSWER: Final = 1
_REFUSAL: Final = 2
_CANCEL: Final = 3


def _frame(kind: int, number: int, value: Any = None, parts: Sequence[bytes] = ()) -> bytes:
    text = b"" if value is None else _ENCODE(value).encode()
    if not parts:
        return _HEAD.pack(_HEAD_BYTES + len(text), number, kind, len(text), 0) + text
    lengths = [len(part) for part in parts]
    packed = struct.pack(f">{len(lengths)}I", *lengths)
    length = _HEAD_BYTES + len(packed) + len(text) + sum(lengths)
    return b"".join((_HEAD.pack(length, number, kind, len(text), len(lengths)), packed, text, *parts))


class Link(asyncio.Protocol):
    """One end of a connection; used on one event loop.

    Args:
        handlers: What the other side may call, by name.
        lost: Called once, when the connection is lost.
        patient: Methods that begin after the others of a read, for whose answers clients wait.

    Attributes:
        is_blocked: Whether the other side did not answer when it was last looked at.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        lost: Callable[[], None] | None = None,
        *,
        patient: Collection[str] = (),
    ) -> None:
        self._handlers = handlers
        self._patient = patient
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._begun = bytearray()  # a frame of which the end has not come
        self._answers: list[bytes] | None = None  # to the frames of a read, while they are handled
        self._number = 0
        self._asked: dict[int, asyncio.Future[Content]] = {}
        self._movable: dict[int, asyncio.Future[Content]] = {}  # those of them that may be made elsewhere
        self.is_blocked = False
        self._answering: dict[int, asyncio.Task[None]] = {}

    @property
    def waiting(self) -> int:
        """How many calls wait for an answer."""
        return len(self._asked)

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, as far as is known."""
        return self._transport is not None and not self._transport.is_closing()

    async def call(
        self, method: str, value: Any = None, parts: Sequence[bytes] = (), *, is_movable: bool = False
    ) -> Content:
        """Call a method of the other side; cancelling the caller cancels the work there.

        Args:
            method: Its name.
            value: For it.
            parts: For it.
            is_movable: Whether the call may be given up for another one elsewhere, though it may have run.

        Raises:
            RefusedError: It answered with an error.
            WorkerLostError: It ended before it answered.
            WorkerBlockedError: The call was given up.
        """
        if not self.is_open:
            raise WorkerLostError("the process at the other end is gone")
        self._number += 1
        number = self._number
        answer: asyncio.Future[Content] = self._loop.create_future()
        self._asked[number] = answer
        if is_movable:
            self._movable[number] = answer
        self._send(_frame(_CALL, number, [method, value], parts))
        try:
            return await answer
        except (asyncio.CancelledError, WorkerBlockedError):
            if self.is_open:
                self._send(_frame(_CANCEL, number))
            raise
        finally:
            self._asked.pop(number, None)
            self._movable.pop(number, None)

    async def look(self, method: str, seconds: float) -> None:
        """Note whether the other side answers a call of a method within a time."""
        try:
            async with asyncio.timeout(seconds):
                await self.call(method)
        except TimeoutError:
            self.is_blocked = True
        else:
            self.is_blocked = False

    def give_up(self) -> None:
        """Fail the calls that may be made elsewhere."""
        for answer in self._movable.values():
            if not answer.done():
                answer.set_exception(WorkerBlockedError)

    def abandon(self) -> None:
        """Cancel all calls that wait for an answer."""
        for answer in self._asked.values():
            answer.cancel()

    def cut(self) -> None:
        """Close the connection at once: a child of an ended process may still hold the other end open."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        """Begin; called by asyncio."""
        self._transport = transport

    def connection_lost(self, _error: Exception | None) -> None:
        """Fail the calls that wait, and cancel the work for the other side; called by asyncio."""
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(WorkerLostError("the process at the other end ended"))
        for task in tuple(self._answering.values()):
            task.cancel()
        if self._lost is not None:
            self._lost()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; called by asyncio."""
        begun = self._begun
        if begun:
            begun += data
            if len(begun) < _HEAD.size or len(begun) < _LENGTH_BYTES + _HEAD.unpack_from(begun)[0]:
                return
            data = bytes(begun)
            begun.clear()
        self._answers = []
        begun += data[self._take_frames(data) :]
        answers, self._answers = self._answers, None
        if answers:
            self._send(b"".join(answers))

    def _take_frames(self, data: bytes) -> int:
        """Take the frames of a read; return where one begins of which the end has not come."""
        at, end = 0, len(data)
        while end - at >= _HEAD.size:
            head = _HEAD.unpack_from(data, at)
            after = at + _LENGTH_BYTES + head[0]
            if after > end:
                break
            self._take(head, data, at + _HEAD.size)
            at = after
        return at

    def _take(self, head: tuple[Any, ...], data: bytes, at: int) -> None:
        _, number, kind, value_bytes, count = head
        lengths = struct.unpack_from(f">{count}I", data, at) if count else ()
        at += _LENGTH_BYTES * count
        begin = at + value_bytes
        value: Any = _DECODE(data[at:begin].decode())[0] if value_bytes else None
        parts = []
        for length in lengths:
            end = begin + length
            parts.append(data[begin:end])
            begin = end
        if kind == _CALL:
            # Most answers are ready without another pass of the event loop.
            method, given = value
            work = self._answer(number, method, given, parts)
            task = asyncio.Task(work, loop=self._loop, eager_start=method not in self._patient)
            if not task.done():
                self._answering[number] = task
        elif kind == _CANCEL:
            if (running := self._answering.get(number)) is not None:
                running.cancel()
        elif (answer := self._asked.get(number)) is not None and not answer.done():
            if kind == _ANSWER:
                answer.set_result((value, parts))
            else:
                name, details = value
                answer.set_exception(RefusedError(name, details))

    async def _answer(self, number: int, method: str, value: Any, parts: Sequence[bytes]) -> None:
        try:
            frame = _frame(_ANSWER, number, *await self._handlers[method](value, parts))
        except RefusedError as refused:
            frame = _frame(_REFUSAL, number, [refused.name, refused.details])
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side must not wait for ever
            frame = _frame(_REFUSAL, number, [_UNEXPECTED, f"{type(error).__name__}: {error}"])
        finally:
            self._answering.pop(number, None)
        self._send(frame)

    def _send(self, frame: bytes) -> None:
        if self._answers is not None:
            self._answers.append(frame)
        elif self.is_open:
            self._transport.write(frame)
