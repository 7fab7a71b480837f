"""Calls between the host and a worker process over a socket pair.

Both sides call and answer; answers come in any order. A frame is sent at once: the other end works while
this one goes on. Only what answers the frames of one read is sent with one write, which may wake the other
end. A frame is its length in 4 bytes, and a tuple as `marshal` writes it:

    call      kind, number, method, value
    answer    kind, number, value
    refusal   kind, number, name, details
    cancel    kind, number

A value is made of None, numbers, texts, bytes, lists, tuples and dictionaries, and of no class derived from
theirs. `marshal` fits since both ends are one Python, takes bytes as they are, and costs a third of JSON.
"""

import asyncio
import marshal
import struct
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

from onebox.hub.invoker import InvocationLostError

_LENGTH: Final = struct.Struct(">I")
_UNEXPECTED: Final = "unexpected"

type Handler = Callable[[Any], Awaitable[Any]]
"""Answers a call with a value, or raises `RefusedError`."""


class WorkerLostError(InvocationLostError):
    """The process at the other end is gone; whether it did the work is unknown."""


class WorkerBlockedError(Exception):
    """The process at the other end answers nothing now, and the call may be made to another."""


class RefusedError(Exception):
    """The other side answered with an error.

    Attributes:
        name: The name of the error, see `wire`.
        details: A value.
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


def _frame(*content: Any) -> bytes:
    body = marshal.dumps(content)
    return _LENGTH.pack(len(body)) + body


class Link(asyncio.Protocol):
    """One end of a connection; used on one event loop.

    Args:
        handlers: What the other side may call, by name.
        lost: Called once, when the connection is lost.
        patient: Methods that begin after the others of a read, for whose answers clients wait.

    Attributes:
        is_blocked: Whether the other side did not answer when it was last looked at.
        is_open: Whether the connection is open, as far as is known.
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
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._movable: dict[int, asyncio.Future[Any]] = {}  # those of them that may be made elsewhere
        self.is_blocked = self.is_open = False
        self._answering: dict[int, asyncio.Task[None]] = {}

    @property
    def waiting(self) -> int:
        """How many calls wait for an answer."""
        return len(self._asked)

    async def call(self, method: str, value: Any = None, *, is_movable: bool = False) -> Any:
        """Call a method of the other side; cancelling the caller cancels the work there.

        Args:
            method: Its name.
            value: For it.
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
        answer = self._loop.create_future()
        self._asked[number] = answer
        if is_movable:
            self._movable[number] = answer
        self._send(_frame(_CALL, number, method, value))
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
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        """Begin; called by asyncio."""
        self._transport, self.is_open = transport, True

    def connection_lost(self, _error: Exception | None) -> None:
        """Fail the calls that wait, and cancel the work for the other side; called by asyncio."""
        self.is_open = False
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
            if len(begun) < _LENGTH.size or len(begun) < _LENGTH.size + _LENGTH.unpack_from(begun)[0]:
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
        at, end, view = 0, len(data), memoryview(data)
        while (begin := at + _LENGTH.size) <= end:
            after = begin + _LENGTH.unpack_from(data, at)[0]
            if after > end:
                break
            is_alone = at == 0 and after == end
            self._take(is_alone, *marshal.loads(view[begin:after]))  # noqa: S302 - this program wrote it, too
            at = after
        return at

    def _take(self, is_alone: bool, kind: int, number: int, *content: Any) -> None:  # noqa: FBT001
        if kind == _CALL:
            # Most answers are ready without another pass of the event loop.
            method, value = content
            work = self._answer(number, method, value)
            begins_now = is_alone or method not in self._patient
            task = asyncio.Task(work, loop=self._loop, eager_start=begins_now)
            if not task.done():
                self._answering[number] = task
        elif kind == _CANCEL:
            if (running := self._answering.get(number)) is not None:
                running.cancel()
        elif (answer := self._asked.get(number)) is not None and not answer.done():
            if kind == _ANSWER:
                answer.set_result(content[0])
            else:
                answer.set_exception(RefusedError(*content))

    async def _answer(self, number: int, method: str, value: Any) -> None:
        try:
            frame = await self._answer_frame(number, method, value)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side must not wait for ever
            frame = _frame(_REFUSAL, number, _UNEXPECTED, f"{type(error).__name__}: {error}")
        finally:
            self._answering.pop(number, None)
        self._send(frame)

    async def _answer_frame(self, number: int, method: str, value: Any) -> bytes:
        try:
            return _frame(_ANSWER, number, await self._handlers[method](value))
        except RefusedError as refused:
            return _frame(_REFUSAL, number, refused.name, refused.details)

    def _send(self, frame: bytes) -> None:
        if self._answers is not None:
            self._answers.append(frame)
        elif self.is_open:
            self._transport.write(frame)
