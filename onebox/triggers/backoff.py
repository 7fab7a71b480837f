"""Pauses that grow: between polls of an empty queue, and between the runs of a retried function."""

from collections.abc import Callable
from datetime import timedelta


class Backoff:
    """Pauses that grow from the least to the longest, each about twice the one before.

    The growth is the host's (RandomizedExponentialBackoffStrategy in the WebJobs SDK): to the least pause
    comes `2^(n-1)` times a step that is drawn between 0.8 and 1.2 times the least pause.
    """

    def __init__(self, least: timedelta, longest: timedelta, draw: Callable[[], float]) -> None:
        """Begin at the least pause.

        Args:
            least: The first pause, above nothing.
            longest: The limit.
            draw: Returns a number from 0 up to 1.
        """
        self._least = min(least, longest)
        self._longest = longest
        self._draw = draw
        self._taken = 0

    def begin_again(self) -> None:
        """Go back to the least pause."""
        self._taken = 0

    def next_pause(self) -> timedelta:
        """Return the next pause."""
        exponent = self._taken - 1
        if exponent < 0:
            self._taken += 1
            return self._least
        step = self._least * (0.8 + 0.4 * self._draw())
        # In seconds, which do not overflow; and the exponent stops growing where the limit is reached.
        seconds = self._least.total_seconds() + step.total_seconds() * float(2**exponent)
        if seconds >= self._longest.total_seconds():
            return self._longest
        self._taken += 1
        return timedelta(seconds=seconds)
