"""How much time one attempt has."""

from dataclasses import dataclass
from datetime import datetime

from engine.deadline import attempt_seconds
from engine.operation import OperationInput
from stores import clock


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The start of an attempt and the seconds that it has, all of it."""

    started_at: datetime
    started_seconds: float
    seconds: float

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the start."""
        return round((clock.monotonic_seconds() - self.started_seconds) * 1000, 1)

    @property
    def seconds_left(self) -> float:
        """Seconds until the attempt is cut off; 0 when it is."""
        return max(0.0, self.seconds - (clock.monotonic_seconds() - self.started_seconds))


def start_clock(operation: OperationInput) -> TimeLimit:
    """Begin to measure an attempt."""
    now = clock.now()
    seconds = attempt_seconds(operation.timeouts, operation.deadline_at, now)
    return TimeLimit(now, clock.monotonic_seconds(), seconds)
