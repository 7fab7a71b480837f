"""Values of one event loop, bounded concurrency, and time limits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final
from weakref import WeakKeyDictionary

_log = logging.getLogger(__name__)


class LoopOwned[T]:
    """One value for each event loop, made when the loop first asks for it; it goes with the loop.

    A worker process has one loop, the tests have one each: locks, clients and timers of a loop that has ended
    do not work in another.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.values: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        """Return the running loop's value."""
        if (loop := asyncio.get_running_loop()) not in self.values:
            self.values[loop] = self._make()
        return self.values[loop]

    def known(self) -> T | None:
        """Return the running loop's value; None before the first `get`."""
        return self.values.get(asyncio.get_running_loop())

    def take(self) -> T:
        """Return the running loop's value and forget it, to close what it holds."""
        self.get()
        return self.values.pop(asyncio.get_running_loop())


async def map_bounded[T, R](function: Callable[[T], Awaitable[R]], items: Iterable[T], most: int) -> list[R]:
    """Call a function with each item, with at most `most` calls at once; return the results in order.

    As `asyncio.gather`, it raises the first failure, and the other calls go on.
    """
    slots = asyncio.Semaphore(most)

    async def call(item: T) -> R:
        async with slots:
            return await function(item)

    return await asyncio.gather(*map(call, items))


async def settle_all[T, R](
    function: Callable[[T], Awaitable[R]], items: Iterable[T], most: int
) -> tuple[list[R], list[Exception]]:
    """Call a function with each item as `map_bounded` does, and wait for all; return results and errors."""

    async def settled(item: T) -> R | Exception:
        try:
            return await function(item)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not keep the other items back
            return error

    outcomes = await map_bounded(settled, items, most)
    errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    return [outcome for outcome in outcomes if not isinstance(outcome, Exception)], errors


async def run_each(steps: Iterable[Callable[[], Awaitable[object]]]) -> None:
    """Run steps one after the other, also those behind one that fails.

    Raises:
        Exception: The first error, when all have ended; the log has the others.
    """
    raise_first((await settle_all(lambda step: step(), steps, 1))[1])


def raise_first(errors: Sequence[Exception]) -> None:
    """Raise the first of some errors, if there is one, and log the others, those of one cause in one line."""
    texts = [str(error) for error in errors[1:]]
    for text, error in dict(zip(texts, errors[1:], strict=True)).items():
        trace = None if type(error) is type(errors[0]) else error  # of what is away one trace is enough
        _log.warning("%d failed as well: %s", texts.count(text), text, exc_info=trace)
    if errors:
        raise errors[0]


QUICK_BYTES: Final = 256 * 1024
"""JSON of this size is parsed in about 20 ms."""


async def read_beside[T](read: Callable[[], T], size_bytes: int) -> T:
    """Call a function that parses `size_bytes` bytes; in a thread where they are more than `QUICK_BYTES`."""
    return read() if size_bytes <= QUICK_BYTES else await asyncio.to_thread(read)


_NO_LIMIT: Final = nullcontext()


def time_limit(seconds: float | None, error: type[Exception]) -> AbstractAsyncContextManager[Any]:
    """Limit the time of a block; None means no limit.

    Raises:
        Exception: `error`, when the time is up.
    """
    return _NO_LIMIT if seconds is None else _Cutoff(seconds, error)


class _Cutoff:
    def __init__(self, seconds: float, error: type[Exception]) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._seconds, self._error = seconds, error

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *exc_info: Any) -> None:  # noqa: PYI036 - passed on as they are
        try:
            await self._timeout.__aexit__(*exc_info)
        except TimeoutError as error:
            raise self._error(str(error) or f"not within {self._seconds:.3g} s") from error
