"""How long a queue that was found empty is left alone."""

from collections.abc import Callable
from datetime import timedelta

_LEAST = timedelta(milliseconds=100)


class IdleBackoff:
    """Pauses that grow from 100 ms to a limit, each about twice the one before.

    The growth is the host's (RandomizedExponentialBackoffStrategy in the WebJobs SDK): to the least pause
    comes `2^(n-1)` times a step that is drawn between 0.8 and 1.2 times the least pause.
    """

    def __init__(self, longest: timedelta, draw: Callable[[], float]) -> None:
        """Begin at the shortest pause.

        Args:
            longest: The limit, at least 100 ms.
            draw: Returns a number from 0 up to 1.
        """
        self._longest = longest
        self._draw = draw
        self._empty_polls = 0

    def found_some(self) -> None:
        """Begin again at the shortest pause."""
        self._empty_polls = 0

    def next_pause(self) -> timedelta:
        """Return the pause after one more empty poll."""
        exponent = self._empty_polls - 1
        if exponent < 0:
            self._empty_polls += 1
            return min(_LEAST, self._longest)
        step = _LEAST * (0.8 + 0.4 * self._draw())
        # The limit is reached long before the power overflows: the exponent stops growing there.
        pause = _LEAST + step * float(2**exponent)
        if pause >= self._longest:
            return self._longest
        self._empty_polls += 1
        return pause
