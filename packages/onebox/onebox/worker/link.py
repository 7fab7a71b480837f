"""Calls between the host and a worker process over a socket pair.

Both sides call and answer; answers come in any order. A frame is sent at once: somebody waits for it at the
other end. Only what answers the frames of one read is sent with one write. A frame has a JSON header for
small values, and parts of bytes, which are not encoded:

    4 bytes   length of what follows
    4 bytes   length of the header
    header    [kind, number of the call, method or name of the refusal, value, length of each part]
    parts
"""

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from onebox.hub.invoker import InvocationLostError

_LENGTHS: Final = struct.Struct(">II")
_UNEXPECTED: Final = "unexpected"
_COMPACT: Final = (",", ":")

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


class _Kind(IntEnum):
    CALL = 0
    ANSWER = 1
    REFUSAL = 2
    CANCEL = 3


def _frame(kind: _Kind, number: int, name: str, value: Any, parts: Sequence[bytes]) -> bytes:
    fields = [int(kind), number, name, value, [len(part) for part in parts]]
    header = json.dumps(fields, separators=_COMPACT).encode()
    length = 4 + len(header) + sum(map(len, parts))
    return b"".join((_LENGTHS.pack(length, len(header)), header, *parts))


class Link(asyncio.Protocol):
    """One end of a connection; used on one event loop.

    Args:
        handlers: What the other side may call, by name.
        lost: Called once, when the connection is lost.

    Attributes:
        is_blocked: Whether the other side did not answer when it was last looked at.
    """

    def __init__(self, handlers: Mapping[str, Handler], lost: Callable[[], None] | None = None) -> None:
        self._handlers = handlers
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._received = bytearray()
        self._unsent: list[bytes] = []
        self._reading = False
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
        self._send(_frame(_Kind.CALL, number, method, value, parts))
        try:
            return await answer
        except (asyncio.CancelledError, WorkerBlockedError):
            if self.is_open:
                self._send(_frame(_Kind.CANCEL, number, "", None, ()))
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
        self._received += data
        self._reading = True
        try:
            self._take_frames()
        finally:
            self._reading = False
            self._flush()

    def _take_frames(self) -> None:
        at, end = 0, len(self._received)
        while end - at >= _LENGTHS.size:
            length, header_length = _LENGTHS.unpack_from(self._received, at)
            if end - at < 4 + length:
                break
            self._take(at + _LENGTHS.size, header_length)
            at += 4 + length
        del self._received[:at]

    def _take(self, at: int, header_length: int) -> None:
        begin = at + header_length
        kind, number, name, value, lengths = json.loads(self._received[at:begin])
        parts = []
        for length in lengths:
            parts.append(bytes(self._received[begin : begin + length]))
            begin += length
        match kind:
            case _Kind.CALL:
                # Eager: most answers are ready without another pass of the event loop.
                task = asyncio.Task(
                    self._answer(number, name, value, parts), loop=self._loop, eager_start=True
                )
                if not task.done():
                    self._answering[number] = task
            case _Kind.CANCEL:
                if (running := self._answering.get(number)) is not None:
                    running.cancel()
            case _:
                answer = self._asked.get(number)
                if answer is not None and not answer.done():
                    self._settle(answer, kind, name, (value, parts))

    @staticmethod
    def _settle(answer: asyncio.Future[Content], kind: int, name: str, content: Content) -> None:
        if kind == _Kind.ANSWER:
            answer.set_result(content)
        else:
            answer.set_exception(RefusedError(name, content[0]))

    async def _answer(self, number: int, method: str, value: Any, parts: Sequence[bytes]) -> None:
        try:
            answer, answer_parts = await self._handlers[method](value, parts)
            frame = _frame(_Kind.ANSWER, number, "", answer, answer_parts)
        except RefusedError as refused:
            frame = _frame(_Kind.REFUSAL, number, refused.name, refused.details, ())
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side must not wait for ever
            text = f"{type(error).__name__}: {error}"
            frame = _frame(_Kind.REFUSAL, number, _UNEXPECTED, text, ())
        finally:
            self._answering.pop(number, None)
        self._send(frame)

    def _send(self, frame: bytes) -> None:
        self._unsent.append(frame)
        if not self._reading:
            self._flush()

    def _flush(self) -> None:
        frames, self._unsent = self._unsent, []
        if frames and self.is_open:
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
