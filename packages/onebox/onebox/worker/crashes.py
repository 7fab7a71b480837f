"""How many crashes of worker processes end the host.

As the Functions host counts them (`RpcFunctionInvocationDispatcher`): once there have been three for each
process, one that crashes is not started again, and the host ends when none is left. Half an hour without a
crash makes it forget. On a real host with one worker the third crash ended the process (4.1037).
"""

from typing import Final

from onebox.clock import Clock

_MOST_PER_PROCESS: Final = 3
_FORGOTTEN_AFTER_SECONDS: Final = 30 * 60.0


class Crashes:
    """Counts crashes.

    Args:
        processes: How many worker processes there are.
        clock: Says when each was.
    """

    def __init__(self, processes: int, clock: Clock) -> None:
        self._most = _MOST_PER_PROCESS * processes
        self._clock = clock
        self._last_seconds = 0.0
        self.count = 0

    def note(self) -> None:
        """Count one more."""
        seconds = self._clock.monotonic()
        if seconds - self._last_seconds > _FORGOTTEN_AFTER_SECONDS:
            self.count = 0
        self.count += 1
        self._last_seconds = seconds

    @property
    def are_too_many(self) -> bool:
        """Whether a process that crashes is not started again."""
        return self.count >= self._most
