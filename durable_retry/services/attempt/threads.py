"""Functions of the app's own, sync or async: sync ones run in threads, so that they do not hold up others."""

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from contextvars import copy_context
from threading import Thread
from typing import Any, Final

from durable_retry.concurrency import LoopOwned

MOST_THREADS: Final = 32
"""At once in one process; the platform runs at most that many sync functions of its own, too."""

_free: Final = LoopOwned[asyncio.Semaphore](lambda: asyncio.Semaphore(MOST_THREADS))


class NoFreeThreadError(asyncio.CancelledError):
    """A call was cancelled before a thread was free for it: it has not begun."""


async def run_function(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what a function returns; a sync one runs in a thread.

    Cancelling it leaves a thread behind that nobody can stop: it counts until it ends.

    Raises:
        NoFreeThreadError: It was cancelled before it began.
        Exception: What the function raised.
    """
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    returned = await _run_in_thread(function, args, kwargs)
    return await returned if inspect.isawaitable(returned) else returned


async def _run_in_thread(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    free = _free.get()
    try:
        await free.acquire()
    except asyncio.CancelledError as error:
        raise NoFreeThreadError from error
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()
    context = copy_context()

    def end(result: Any, error: BaseException | None) -> None:
        free.release()
        if ended.done():
            return
        if error is None:
            ended.set_result(result)
        else:
            ended.set_exception(error)

    def run() -> None:
        result, raised = None, None
        try:
            result = context.run(function, *args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - it is raised where the function is awaited
            raised = error
        with contextlib.suppress(RuntimeError):  # The loop has ended; nobody waits any more.
            loop.call_soon_threadsafe(end, result, raised)

    # A daemon: a process that ends does not wait for a function that has been given up.
    Thread(target=run, daemon=True, name=f"operation {getattr(function, '__name__', '')}").start()
    return await ended
