"""Dead letters by their root cause, and what people did about it.

A root cause is new until somebody looks into it, and again when it comes back:

    new ──acknowledge──> acknowledged ──resolve──> resolved ──one fails again──> new
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, Self

from pydantic import Field

from durable_retry.base.answers import Answer, Instant, Unreadable, left_out
from durable_retry.base.json_forms import JsonShape, is_none
from durable_retry.base.names import Category, DeadLetterReason
from durable_retry.features.dead_letter_lists.counts import Tally
from durable_retry.rules.dead_letters.document import DeadLetterDocument
from durable_retry.rules.dead_letters.record import MAX_NOTES, FullError, KeptDeadLetter, Note
from durable_retry_console.limit_keys import LimitKeyCounts


class CauseStatus(StrEnum):
    """Where a root cause stands with people."""

    NEW = "new"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause(JsonShape):
    """What people did about a root cause; nothing yet by default."""

    group: str  # the group of its dead letters
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    resolved_at: datetime | None = None
    resolved_by: str | None = None
    notes: tuple[Note, ...] = ()  # the oldest first

    def came_back(self, last_seen_at: datetime) -> bool:
        """Return whether a dead letter was made after somebody had resolved it."""
        return self.resolved_at is not None and last_seen_at > self.resolved_at

    def status(self, last_seen_at: datetime) -> CauseStatus:
        """Return where it stands, by its latest dead letter: one that came back is new again."""
        acknowledged, resolved = self.acknowledged_at, self.resolved_at
        if acknowledged is not None and (resolved is None or acknowledged > resolved):
            return CauseStatus.ACKNOWLEDGED
        is_over = resolved is not None and not self.came_back(last_seen_at)
        return CauseStatus.RESOLVED if is_over else CauseStatus.NEW

    def acknowledged(self, now: datetime, by: str | None) -> Self:
        return replace(self, acknowledged_at=now, acknowledged_by=by)

    def resolved(self, now: datetime, by: str | None) -> Self:
        """Return it as mended: a dead letter that is made later says that it came back."""
        return replace(self, resolved_at=now, resolved_by=by)

    def noted(self, text: str, now: datetime, by: str | None) -> Self:
        """Return it with one more note; FullError where it has as many as it can hold."""
        if len(self.notes) >= MAX_NOTES:
            raise FullError(f"it has {MAX_NOTES} notes already")
        return replace(self, notes=(*self.notes, Note(text=text, at=now, by=by)))


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
        return cls.taken_from(record, detail=record.detail[:_DETAIL_CHARS])


class DeadLetterGroup(Answer):
    """Open dead letters of one root cause, and what people did about it."""

    group: str
    count: int
    first_seen_at: Instant = Field(description="When the oldest that is counted was made.")
    last_seen_at: Instant = Field(description="When the latest was made, which is the sample.")
    sample: DeadLetterSample
    limit_keys: LimitKeyCounts | None = left_out("Whose they are. Left out without limit keys.")
    status: CauseStatus = Field(
        default=CauseStatus.NEW, description="`new`, also when it came back; `acknowledged`; `resolved`."
    )
    came_back: bool = Field(
        default=False, description="Whether one was made after somebody had resolved the cause."
    )
    acknowledged_at: Instant | None = None
    acknowledged_by: str | None = None
    resolved_at: Instant | None = Field(default=None, description="When it was mended; null before.")
    resolved_by: str | None = None
    notes: tuple[Note, ...] = ()

    @classmethod
    def of(cls, cause: Cause, tally: Tally, latest: KeptDeadLetter) -> Self:
        return cls.taken_from(
            cause,
            count=tally.count,
            first_seen_at=tally.first_at,
            last_seen_at=tally.latest_at,
            sample=DeadLetterSample.of(latest),
            limit_keys=LimitKeyCounts.of(tally.limit_keys),
            status=cause.status(tally.latest_at),
            came_back=cause.came_back(tally.latest_at),
        )


class OtherGroups(Answer):
    """Causes that are not shown one by one."""

    causes: int = Field(description="How many causes.")
    open: int = Field(description="Their open dead letters.")


class LargestGroups(Answer):
    """The root causes with the most open dead letters; of equals the oldest."""

    groups: tuple[DeadLetterGroup, ...]
    others: OtherGroups = Field(description="The causes that `groups` leaves out.")


class CauseDocument(DeadLetterGroup):
    """A root cause, and the whole dead letter that is its sample: the latest open one, else the latest."""

    latest: DeadLetterDocument | None = Field(description="null when it was removed.")
