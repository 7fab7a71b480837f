"""The work that may run on an event loop's own thread: that costs least, but blocks the loop meanwhile."""

from typing import Final

_FIRST_PENALTY: Final = 8
_LONGEST_PENALTY: Final = 4096


class InlinePolicy:
    """Allows work that has not blocked the loop for long lately.

    Work that did runs elsewhere for its next runs: 8 of them, and twice as many each time it is slow again.
    """

    def __init__(self, slow_seconds: float) -> None:
        """Create a policy.

        Args:
            slow_seconds: A run on the loop that takes longer counts as slow.
        """
        self._slow_seconds = slow_seconds
        self._left: dict[str, int] = {}
        self._penalties: dict[str, int] = {}

    def allows(self, work: str) -> bool:
        """Whether the next run may be on the loop's thread."""
        return self._left.get(work, 0) == 0

    def note_elsewhere(self, work: str) -> None:
        """Count a run elsewhere."""
        self._left[work] = max(self._left.get(work, 0) - 1, 0)

    def note(self, work: str, seconds: float) -> None:
        """Note how long a run on the loop's thread took."""
        if seconds > self._slow_seconds:
            penalty = min(2 * self._penalties.get(work, _FIRST_PENALTY // 2), _LONGEST_PENALTY)
            self._penalties[work] = self._left[work] = penalty
        else:
            self._penalties.pop(work, None)
