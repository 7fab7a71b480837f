"""Open dead letters in numbers: how many of each kind, how old, and by root cause."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Annotated, Final, Self

from pydantic import Field

from durable_retry.engine.base.answers import Answer, Instant
from durable_retry.engine.base.json_forms import is_none
from durable_retry.engine.base.names import Category, DeadLetterReason
from durable_retry.engine.base.unreadable import Unreadable
from durable_retry.engine.dead_letters.cause import Cause, CauseStatus
from durable_retry.engine.dead_letters.record import KeptDeadLetter, Note

WITHOUT_DEPENDENCY: Final = "(none)"
"""Stands for a dependency where a message names none that is configured."""

_DETAIL_CHARS: Final = 300


class DeadLetterSample(Answer):
    """One dead letter of a group."""

    id: str
    dependency: str | None
    category: Category
    reason: DeadLetterReason
    detail: str
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)

    @classmethod
    def of(cls, record: KeptDeadLetter) -> Self:
        """Return what is kept of a dead letter."""
        return cls.taken_from(record, detail=record.detail[:_DETAIL_CHARS])


class DeadLetterGroup(Answer):
    """Open dead letters of one root cause, and what people did about it."""

    group: str
    count: int
    first_seen_at: Annotated[Instant, Field(description="When the oldest that is counted was made.")]
    last_seen_at: Annotated[Instant, Field(description="When the latest was made, which is the sample.")]
    sample: DeadLetterSample
    status: Annotated[
        CauseStatus, Field(description="`new`, also when it came back; `acknowledged`; `resolved`.")
    ] = CauseStatus.NEW
    came_back: Annotated[
        bool, Field(description="Whether one was made after somebody had resolved the cause.")
    ] = False
    acknowledged_at: Instant | None = None
    acknowledged_by: str | None = None
    resolved_at: Annotated[Instant | None, Field(description="When it was mended; null before.")] = None
    resolved_by: str | None = None
    notes: tuple[Note, ...] = ()

    def with_cause(self, cause: Cause | None) -> Self:
        """Return it with what people did about the cause; None for nothing."""
        if cause is None:
            return self
        told = {field.name: getattr(cause, field.name) for field in fields(cause)}
        status, came_back = cause.status(self.last_seen_at), cause.came_back(self.last_seen_at)
        return self.model_copy(update={**told, "status": status, "came_back": came_back})


class OtherGroups(Answer):
    """Causes that are not shown one by one."""

    causes: Annotated[int, Field(description="How many causes.")]
    open: Annotated[int, Field(description="Their open dead letters.")]


class LargestGroups(Answer):
    """The root causes with the most open dead letters; of equals the oldest."""

    groups: tuple[DeadLetterGroup, ...]
    others: Annotated[OtherGroups, Field(description="The causes that `groups` leaves out.")]


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

    complete: Annotated[
        bool,
        Field(description="False where only the newest 10,000 were counted. `oldest_at` is that of all."),
    ] = True
    by_reason: Mapping[str, OpenDeadLetters]
    by_dependency: Mapping[str, OpenDeadLetters]


def open_dead_letters(count: int, oldest_at: datetime | None, now: datetime) -> OpenDeadLetters:
    """Return the numbers of a kind; `oldest_at` is None when there is none."""
    age_seconds = None if oldest_at is None else max(0.0, (now - oldest_at).total_seconds())
    return OpenDeadLetters(open=count, oldest_at=oldest_at, oldest_age_seconds=age_seconds)
