"""Open dead letters in numbers: how many of each kind, how old, and by root cause."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Self

from pydantic import Field

from durable_retry.engine.base.answers import Answer, Instant
from durable_retry.engine.base.json_forms import is_none
from durable_retry.engine.base.names import Category, DeadLetterReason
from durable_retry.engine.base.unreadable import Unreadable
from durable_retry.engine.dead_letters.record import DeadLetterRecord

WITHOUT_DEPENDENCY: Final = "(none)"
"""Stands for a dependency where a message names none that is configured."""

_DETAIL_CHARS: Final = 300
"""A sample is stored again with each dead letter of its group."""


class DeadLetterSample(Answer):
    """One dead letter of a group."""

    id: str
    dependency: str | None
    category: Category
    reason: DeadLetterReason
    detail: str
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)

    @classmethod
    def of(cls, record: DeadLetterRecord) -> Self:
        """Return what is kept of a dead letter."""
        sample = cls.model_validate(record, from_attributes=True)
        return sample.model_copy(update={"detail": record.detail[:_DETAIL_CHARS]})


class DeadLetterGroup(Answer):
    """Open dead letters of one root cause.

    Attributes:
        first_seen_at: When the first one ever counted was made, also when it is closed by now.
        last_seen_at: When the latest was made, which is the sample.
    """

    group: str
    count: int
    first_seen_at: Instant
    last_seen_at: Instant
    sample: DeadLetterSample


class OpenDeadLetters(Answer):
    """Open dead letters of one kind."""

    open: int
    oldest_at: Instant | None
    oldest_age_seconds: float | None


class DeadLetterSummary(OpenDeadLetters):
    """Open dead letters, in all and by kind."""

    by_reason: Mapping[str, OpenDeadLetters]
    by_dependency: Mapping[str, OpenDeadLetters]


def open_dead_letters(count: int, oldest_at: datetime | None, now: datetime) -> OpenDeadLetters:
    """Return the numbers of a kind; `oldest_at` is None when there is none."""
    age_seconds = None if oldest_at is None else max(0.0, (now - oldest_at).total_seconds())
    return OpenDeadLetters(open=count, oldest_at=oldest_at, oldest_age_seconds=age_seconds)
