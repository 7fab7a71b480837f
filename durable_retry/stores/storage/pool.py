"""Threads of the storage clients, apart from the event loop's default executor.

The default executor also resolves host names. Slow storage on its threads would make calls to healthy
dependencies wait for a name until their connect timeout, which counts against them.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from weakref import WeakKeyDictionary

from azure.core.exceptions import ServiceRequestTimeoutError

_THREADS: Final = 32
"""Calls at once. The clients keep a connection for each; more would only wait in the service."""

WAIT_SECONDS: Final = 5.0
"""Longest wait for a thread: when storage is slow, callers fail early rather than queue without end."""

CLIENT_OPTIONS: Final = {"retry_total": 1, "connection_timeout": 2, "read_timeout": 5}
"""Seconds of each request. Callers are retried by their orchestration, queue or timer, so the client itself
only covers short interruptions."""

_pool: Final = ThreadPoolExecutor(_THREADS, "storage")
_free_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def run_in_pool[T](action: Callable[[], T]) -> T:
    """Run a blocking storage call on a thread of its own.

    Raises:
        azure.core.exceptions.ServiceRequestTimeoutError: No thread became free; the call was not begun.
    """
    loop = asyncio.get_running_loop()
    free = _free_threads.setdefault(loop, asyncio.Semaphore(_THREADS))
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await free.acquire()
    except TimeoutError as error:
        raise ServiceRequestTimeoutError(f"{_THREADS} storage calls are under way") from error
    call = loop.run_in_executor(_pool, action)
    # Not before the thread is free: a caller may be cancelled while the call goes on.
    call.add_done_callback(lambda _: free.release())
    return await asyncio.shield(call)
