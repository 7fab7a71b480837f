"""One attempt about to be made."""

from dataclasses import dataclass
from typing import Any

from activities.time_limit import TimeLimit
from engine.dependency import Dependency
from engine.operation import AttemptOutcome, OperationInput


@dataclass(frozen=True, slots=True)
class Plan:
    """What an attempt needs to know.

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
        """Return what came of it, ending now; with nothing more said it is a success."""
        return AttemptOutcome(
            number=self.number, started_at=self.limit.started_at, duration_ms=self.limit.elapsed_ms, **more
        )
