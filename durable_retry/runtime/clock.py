"""The app's only reader of time, so that tests and benchmarks can own it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

type Reader = Callable[[], datetime]


_reader: Reader = partial(datetime.now, UTC)


def now() -> datetime:
    """Return the present instant, aware and in UTC."""
    return _reader()


def monotonic_seconds() -> float:
    """Return the monotonic clock, for durations."""
    return _monotonic()


_monotonic: Callable[[], float] = time.monotonic


@contextmanager
def reading(reader: Reader, monotonic: Callable[[], float] | None = None) -> Iterator[None]:
    """Make `now`, and the monotonic clock, use another reader inside the block.

    Args:
        reader: Called for each reading; returns an aware UTC instant.
        monotonic: Returns seconds; None leaves the monotonic clock as it is.
    """
    global _reader, _monotonic
    previous = _reader, _monotonic
    _reader, _monotonic = reader, monotonic or _monotonic
    try:
        yield
    finally:
        _reader, _monotonic = previous
