"""Decides whether workers' transactions wait for a client's, to share its commit."""

import time
from collections.abc import Callable
from typing import Final

_WEIGHT: Final = 1 / 8  # of the latest group in the share: a burst's end is noticed after a few groups
_LIKELY: Final = 0.5


class Ride:
    """Expects a client's transaction soon if most groups of workers' transactions have lately met one.

    Under load a client's next request is on its way when a group is filled, and one sync of the disk serves
    both. At a slow pace nobody comes in time, and to wait would only delay what the group wakes.

    Args:
        seconds: How long a group may wait for a client; 0 for not at all.
        monotonic: Tells the time, in seconds.
    """

    def __init__(self, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._monotonic = monotonic
        self._share = 1.0  # of the latest groups, those that a client's transaction followed in time
        self._filled_at: float | None = None  # when the oldest group was filled that has met no client yet

    @property
    def is_likely(self) -> bool:
        """Whether a client's transaction is likely to come in time."""
        return self._share >= _LIKELY

    def note_filled(self) -> None:
        """Note that a group holds workers' transactions alone."""
        now = self._monotonic()
        if self._filled_at is None:
            self._filled_at = now
        elif now - self._filled_at > self.seconds:
            self._note(came=False)
            self._filled_at = now

    def note_client(self) -> None:
        """Note that a client's transaction has come."""
        if self._filled_at is not None:
            self._note(came=self._monotonic() - self._filled_at <= self.seconds)
            self._filled_at = None

    def _note(self, *, came: bool) -> None:
        self._share += _WEIGHT * (came - self._share)
