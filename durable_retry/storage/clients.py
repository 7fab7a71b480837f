"""The clients of the storage account: their threads and their connections.

The synchronous clients run on threads of their own: the asynchronous ones need aiohttp, which nothing else
here does, and the event loop's default executor also resolves host names. Slow storage on its threads would
make calls to healthy dependencies wait for a name until their connect timeout, which counts against them.

The SDK of tables is imported when one is first used (`table_service.py`).
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import chain
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, Final

from azure.core.exceptions import ServiceRequestTimeoutError

from durable_retry.runtime.concurrency import LoopOwned
from durable_retry.runtime.deferred import imported
from durable_retry.settings.storage_account import ConnectionString, credential_of, storage_account

if TYPE_CHECKING:
    from azure.core.paging import ItemPaged
    from azure.data.tables import TableServiceClient

_TABLE_SERVICE: Final = "durable_retry.storage.table_service:TableService"
_TRANSPORT: Final = "durable_retry.storage.table_service:pooled_transport"

_THREADS: Final = 32
"""Calls at once. The client keeps a connection for each; more would only wait in the service."""

WAIT_SECONDS: Final = 5.0
"""Longest wait for a thread: when storage is slow, callers fail early rather than queue without end."""

REQUEST_SECONDS: Final = {"connection_timeout": 2, "read_timeout": 5}

CLIENT_OPTIONS: Final[dict[str, Any]] = {"retry_total": 1, **REQUEST_SECONDS}
"""Callers are retried by their orchestration, queue or timer: the client covers short interruptions only."""

_pool: Final = ThreadPoolExecutor(_THREADS, "storage")
_free_threads: Final = LoopOwned(partial(asyncio.Semaphore, _THREADS))


async def run_in_pool[T](action: Callable[[], T]) -> T:
    """Run a blocking storage call on a thread of its own.

    Raises:
        azure.core.exceptions.ServiceRequestTimeoutError: No thread became free; the call was not begun.
    """
    free = _free_threads.get()
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await free.acquire()
    except TimeoutError as error:
        raise ServiceRequestTimeoutError(f"{_THREADS} storage calls are under way") from error
    return await asyncio.shield(_begin_call(action, free))


def _begin_call[T](action: Callable[[], T], free: asyncio.Semaphore) -> asyncio.Future[T]:
    # Not in `run_in_pool`: its frame, to which an error of the call refers, must not refer to the call.
    call = asyncio.get_running_loop().run_in_executor(_pool, _freed_at_error, action)
    # A caller may be cancelled while the call goes on; asyncio logs an error that nobody reads.
    call.add_done_callback(lambda _: free.release())
    call.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return call


def _freed_at_error[T](action: Callable[[], T]) -> T:
    """Call an action; free what the SDK's frames hold when it fails.

    The error and the frames refer to each other: the response would stay until a garbage collection.
    """
    try:
        return action()
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            clear_frames(cause.__traceback__)
            cause = cause.__context__
        raise


def items_of[T](paged: "ItemPaged[T]") -> Iterator[T]:
    """Iterate over what the SDK returns in pages, and free the last page at the end.

    Its pages refer to themselves: megabytes would stay until a garbage collection, which counts objects only.
    """
    pages = paged.by_page()
    try:
        yield from chain.from_iterable(pages)
    finally:
        vars(pages).clear()


@cache
def table_service() -> "TableServiceClient":
    """Return the client of the account's tables."""
    # Once per process: app settings do not change while it runs, and a call should not read them again.
    options = CLIENT_OPTIONS | {"transport": imported(_TRANSPORT)(_THREADS, **REQUEST_SECONDS)}
    client: TableServiceClient = client_of_account(_TABLE_SERVICE, "tables_url", options)
    return client


def client_of_account(service: str, url: str, options: Mapping[str, Any]) -> Any:
    """Return a client of the app's storage account.

    Args:
        service: Where its class is.
        url: The attribute of an `IdentityAccount` that has its URL.
    """
    account, make = storage_account(), imported(service)
    if isinstance(account, ConnectionString):
        return make.from_connection_string(account.text, **options)
    return make(getattr(account, url), credential=credential_of(account.identity), **options)
