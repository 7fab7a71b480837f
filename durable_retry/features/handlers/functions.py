"""Runs the app's own functions: async ones in tasks, others in threads, so that they do not block the loop.

A task of its own tells cancellations apart: one in that task came from the function, one of the caller's task
from outside. asyncio raises the `SystemExit` of any task out of the event loop, which ends the process; so
tasks that a function creates raise a `LetOutError` in its place.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any, Final, override

from durable_retry.base.foreign import look, name_of, text_of
from durable_retry.runtime.concurrency import LoopOwned

MOST_THREADS: Final = 32
"""Most threads at once in one process; the platform runs at most that many sync functions of its own, too."""

CANCEL_SECONDS: Final = 2.0
"""How long a cancelled function may take to end; one that takes longer is left running."""

_free: Final = LoopOwned[asyncio.Semaphore](lambda: asyncio.Semaphore(MOST_THREADS))


class NoFreeThreadError(asyncio.CancelledError):
    """A call was cancelled before a thread was free for it: it has not begun."""


class Interruption(BaseException):
    """Ends an attempt from within its function, for a reason that is not the function's."""


class LetOutError(Exception):
    """A function raised what is no `Exception`, such as `SystemExit`: `let_out`, also the cause."""

    def __init__(self, let_out: BaseException) -> None:
        super().__init__(f"{name_of(let_out)}: {text_of(let_out)}".removesuffix(": "))
        self.let_out = self.__cause__ = let_out


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a function ended; what it raised is a value here, since an event loop would act on it."""

    returned: Any = None
    raised: BaseException | None = None


async def run_function(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what a function returns.

    When it is cancelled, a thread runs on, since it cannot be stopped, and so does a task that does not end
    within 2 s. A thread counts until it ends.

    Raises:
        NoFreeThreadError: It was cancelled before it began.
        asyncio.CancelledError: It was cancelled from outside.
        Interruption: The function must not go on.
        LetOutError: The function raised what is no `Exception`.
        Exception: What the function raised.
    """
    if inspect.iscoroutinefunction(function):
        ended = await _run_in_task(function, args, kwargs)
    else:
        ended = await _run_in_thread(function, args, kwargs)
        if ended.raised is None and look(partial(inspect.isawaitable, ended.returned), otherwise=False):
            ended = await _run_in_task(_awaited, (ended.returned,), {})
    if ended.raised is None:
        return ended.returned
    raise _as_error(ended.raised)


def _as_error(raised: BaseException) -> BaseException:
    if issubclass(type(raised), Exception):
        return raised
    interruptions = (member for member in members_of(raised) if issubclass(type(member), Interruption))
    return next(interruptions, LetOutError(raised))


def members_of(error: BaseException) -> list[BaseException]:
    """Return what is inside of a group, however deep, and of a `LetOutError`; else the error itself."""
    members, pending = [], [error]
    while pending:
        member = pending.pop()
        if issubclass(type(member), BaseExceptionGroup):
            # By the base class: a subclass may show something else.
            pending.extend(reversed(BaseExceptionGroup.exceptions.__get__(member)))
        elif type(member) is LetOutError:
            pending.append(member.let_out)
        else:
            members.append(member)
    return members


_is_in_function: Final = ContextVar("durable_retry_in_function", default=False)
"""Whether the present task is a function's, or one that it created."""


class _GuardedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine whose `SystemExit` does not end the process."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self.__qualname__ = getattr(inner, "__qualname__", type(inner).__qualname__)
        self._inner = inner

    @override
    def send(self, value: Any) -> Any:
        return self._guarded(self._inner.send, value)

    @override
    def throw(self, *error: Any) -> Any:
        return self._guarded(self._inner.throw, *error)

    @override
    def close(self) -> None:
        self._inner.close()

    @override
    def __await__(self) -> Any:
        return self._inner.__await__()

    def _guarded(self, resume: Callable[..., Any], *args: Any) -> Any:
        try:
            return resume(*args)
        except (SystemExit, KeyboardInterrupt) as error:
            raise LetOutError(error) from error


@dataclass(frozen=True, slots=True)
class _TaskFactory:
    """Makes the tasks of an event loop as its factory did before."""

    inner: Any

    def __call__(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        if _is_in_function.get():
            work = _GuardedCoroutine(work)
        if self.inner is None:
            return asyncio.Task(work, loop=loop, **options)
        return self.inner(loop, work, **options)


def _guard_tasks() -> None:
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, _TaskFactory):
        loop.set_task_factory(_TaskFactory(factory))


async def _run_in_task(function: Callable[..., Any], args: Any, kwargs: Any) -> _Ended:
    _guard_tasks()
    task = asyncio.create_task(_end_of(function, args, kwargs))
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_SECONDS)
        if not task.done():
            raise
        if isinstance(raised := task.result().raised, asyncio.CancelledError):
            raise raised from None
    return task.result()


async def _end_of(function: Callable[..., Any], args: Any, kwargs: Any) -> _Ended:
    _is_in_function.set(True)
    try:
        return _Ended(returned=await function(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - it is raised where the function is awaited
        return _Ended(raised=error)


async def _awaited(returned: Any) -> Any:
    return await returned


async def _run_in_thread(function: Callable[..., Any], args: Any, kwargs: Any) -> _Ended:
    free = _free.get()
    try:
        await free.acquire()
    except asyncio.CancelledError as error:
        raise NoFreeThreadError from error
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[_Ended] = loop.create_future()
    context = copy_context()
    context.run(_is_in_function.set, True)  # noqa: FBT003 - a context variable takes its value so

    def end(result: _Ended) -> None:
        free.release()
        if not ended.done():
            ended.set_result(result)

    def run() -> None:
        try:
            result = _Ended(returned=context.run(function, *args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - as above
            result = _Ended(raised=error)
        with contextlib.suppress(RuntimeError):  # The loop has ended, and with it the caller.
            loop.call_soon_threadsafe(end, result)

    # A daemon: a process that ends does not wait for a function that has been given up.
    Thread(target=run, daemon=True, name=f"operation {getattr(function, '__name__', '')}").start()
    return await ended
