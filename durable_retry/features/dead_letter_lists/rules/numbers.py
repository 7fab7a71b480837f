"""What people see of dead letters in numbers."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from pydantic import Field

from durable_retry.base.answers import Answer, Instant

WITHOUT_DEPENDENCY: Final = "(none)"
"""Stands for a dependency where a message names none that is configured."""


class DeadLetterCount(Answer):
    """How many dead letters match a filter."""

    count: int


class OpenDeadLetters(Answer):
    """Open dead letters of one kind."""

    open: int
    oldest_at: Instant | None
    oldest_age_seconds: float | None


class DeadLetterSummary(OpenDeadLetters):
    """Open dead letters, in all and by kind."""

    complete: bool = Field(
        default=True,
        description="False where only the newest 10,000 were counted. `oldest_at` is that of all.",
    )
    by_reason: Mapping[str, OpenDeadLetters]
    by_dependency: Mapping[str, OpenDeadLetters]


def open_dead_letters(count: int, oldest_at: datetime | None, now: datetime) -> OpenDeadLetters:
    """Return the numbers of a kind; `oldest_at` is None when there is none."""
    age_seconds = None if oldest_at is None else max(0.0, (now - oldest_at).total_seconds())
    return OpenDeadLetters(open=count, oldest_at=oldest_at, oldest_age_seconds=age_seconds)
