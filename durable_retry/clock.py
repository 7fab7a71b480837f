"""The app's only reader of time, so that tests and benchmarks can own it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

type Reader = Callable[[], datetime]


def _system_time() -> datetime:
    return datetime.now(UTC)


_reader: Reader = _system_time


def now() -> datetime:
    """Return the present instant, aware and in UTC."""
    return _reader()


def monotonic_seconds() -> float:
    """Return the monotonic clock, for durations."""
    return time.monotonic()


@contextmanager
def reading(reader: Reader) -> Iterator[None]:
    """Make `now` use another reader inside the block.

    Args:
        reader: Called for each reading; returns an aware UTC instant.
    """
    global _reader  # noqa: PLW0603 - the one place where the app's clock is swapped
    previous = _reader
    _reader = reader
    try:
        yield
    finally:
        _reader = previous
