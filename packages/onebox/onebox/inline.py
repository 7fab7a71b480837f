"""Which work may run on an event loop's own thread, where it costs least but holds up everything else."""

from typing import Final

_FIRST_PENALTY: Final = 8
_LONGEST_PENALTY: Final = 4096


class InlinePolicy:
    """Allows work that has not held up the thread lately.

    Work that took long runs elsewhere for its next runs, twice as many each time it takes long again.
    """

    def __init__(self, slow_seconds: float) -> None:
        """Make a policy.

        Args:
            slow_seconds: A run here that takes longer holds up too much.
        """
        self._slow_seconds = slow_seconds
        self._left: dict[str, int] = {}
        self._penalties: dict[str, int] = {}

    def allows(self, work: str) -> bool:
        """Whether the next run may be here."""
        return self._left.get(work, 0) == 0

    def note_elsewhere(self, work: str) -> None:
        """Count a run elsewhere."""
        self._left[work] = max(self._left.get(work, 0) - 1, 0)

    def note(self, work: str, seconds: float) -> None:
        """Note how long a run here took."""
        if seconds > self._slow_seconds:
            penalty = min(2 * self._penalties.get(work, _FIRST_PENALTY // 2), _LONGEST_PENALTY)
            self._penalties[work] = self._left[work] = penalty
        else:
            self._penalties.pop(work, None)
