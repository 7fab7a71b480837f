"""An attempt about to be made: what it calls, how much time it has, and how its errors are shown."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from durable_retry import clock
from durable_retry.engine.base.text import MASK, Secret
from durable_retry.engine.dependency import Dependency
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.retry.decide import attempt_seconds
from durable_retry.engine.retry.history import AttemptOutcome

_SHORTEST_SECRET_CHARS: Final = 6
"""A shorter value protects nothing, and masking it would riddle innocent text."""

_ERROR_CHARS: Final = 300


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


@dataclass(frozen=True, slots=True)
class Plan:
    """One attempt about to be made.

    Attributes:
        operation: Whose attempt it is.
        number: Which one, from 1.
        dependency: What it calls, secrets included.
        limit: How much time it has.
        deduplicated_by: The header on which the receiver recognises a repeated request; None means the one
            that the dependency's settings name.
    """

    operation: OperationInput
    number: int
    dependency: Dependency
    limit: TimeLimit
    deduplicated_by: str | None = None

    @property
    def deduplication_header(self) -> str:
        """The header on which the receiver recognises a repeated request; "" when it does not."""
        if self.deduplicated_by is not None:
            return self.deduplicated_by
        return self.dependency.idempotency.header

    def outcome(self, **more: Any) -> AttemptOutcome:
        """Return the outcome of this attempt, ending now; without `category` it is a success."""
        return AttemptOutcome(
            number=self.number, started_at=self.limit.started_at, duration_ms=self.limit.elapsed_ms, **more
        )


def masked(text: str, dependency: Dependency) -> str:
    """Return a text without the dependency's secrets: some services echo what they were sent."""
    for secret in _secrets(dependency):
        text = text.replace(secret, MASK)
    return text


def error_line(error: BaseException, dependency: Dependency) -> str:
    """Return an exception's name and message as one line, without secrets."""
    message = " ".join(str(error).split())
    line = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return masked(line, dependency)[:_ERROR_CHARS]


def _secrets(dependency: Dependency) -> list[str]:
    """Return secret texts, the longest first; of `Bearer abc` also the part after the scheme."""
    values = [value for value in dependency.headers.values() if isinstance(value, Secret)]
    if dependency.auth is not None:
        values.append(dependency.auth.value)
    texts = {part for value in values for part in (value.reveal(), value.reveal().rpartition(" ")[2])}
    return sorted((text for text in texts if len(text) >= _SHORTEST_SECRET_CHARS), key=len, reverse=True)
