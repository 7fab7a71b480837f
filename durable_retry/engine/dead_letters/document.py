"""What people see of dead letters: each by itself, by root cause, and in numbers.

A root cause is new until somebody looks into it, and again when it comes back:

    new ──acknowledge──> acknowledged ──resolve──> resolved ──one fails again──> new
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Self, cast

from pydantic import Field

from durable_retry.engine.base.answers import Answer, Instant, LimitKeyCounts, Unreadable, left_out
from durable_retry.engine.base.json_forms import JsonShape, is_none
from durable_retry.engine.base.masking import Masking
from durable_retry.engine.base.names import Category, DeadLetterReason, Priority
from durable_retry.engine.dead_letters.record import (
    MAX_NOTES,
    EditedValue,
    FullError,
    KeptDeadLetter,
    Note,
    Replay,
    Status,
)
from durable_retry.engine.operations.operation import content_of
from durable_retry.engine.operations.status import OperationContent
from durable_retry.engine.retry.history import FailureDetail, PastAttempt


class CauseStatus(StrEnum):
    """Where a root cause stands with people."""

    NEW = "new"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause(JsonShape):
    """What people did about a root cause; nothing yet by default.

    Attributes:
        group: The group of its dead letters.
        notes: The oldest first.
    """

    group: str
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    resolved_at: datetime | None = None
    resolved_by: str | None = None
    notes: tuple[Note, ...] = ()

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
        return cls.taken_from(record, detail=record.detail[:_DETAIL_CHARS])


class DeadLetterGroup(Answer):
    """Open dead letters of one root cause, and what people did about it."""

    group: str
    count: int
    first_seen_at: Annotated[Instant, Field(description="When the oldest that is counted was made.")]
    last_seen_at: Annotated[Instant, Field(description="When the latest was made, which is the sample.")]
    sample: DeadLetterSample
    limit_keys: Annotated[LimitKeyCounts | None, left_out("Whose they are. Left out without limit keys.")] = (
        None
    )
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


class DeadLetterDocument(OperationContent):
    """What will not succeed without a person: has `request`, `handler` and `input`, or `message`."""

    id: str
    operation_id: str | None
    key: str
    source: str
    dependency: str | None
    category: Category
    reason: DeadLetterReason
    detail: str
    group: str
    attempts: tuple[PastAttempt, ...]
    message: Annotated[str | None, Field(exclude_if=is_none)] = None
    message_chars: Annotated[
        int | None, left_out("Length of the whole message, of which `message` holds the first 100,000.")
    ] = None
    correlation_id: str | None
    order_key: Annotated[str | None, left_out("Of its operation. Left out without one.")] = None
    priority: Annotated[
        Priority | None,
        Field(
            exclude_if=lambda priority: priority in {None, Priority.NORMAL},
            description="Of its operation. Left out where it is `normal`.",
        ),
    ] = None
    limit_key: Annotated[str | None, left_out("Of its operation. Left out without one.")] = None
    debounce_key: Annotated[str | None, left_out("Of its operation. Left out without one.")] = None
    first_failed_at: Instant
    created_at: Instant
    status: Status
    archived_at: Instant | None
    archived_by: str | None
    failure: Annotated[
        FailureDetail | None,
        left_out("More of the last failure. Left out where `detail` says all."),
    ] = None
    replay_of: str | None
    replays: tuple[Replay, ...]
    notes: tuple[Note, ...]
    unreadable: Annotated[Unreadable, Field(exclude_if=is_none)] = None

    @classmethod
    def of(cls, record: KeptDeadLetter, masking: Masking) -> Self:
        """Return the document of `GET /api/dead-letters/{id}`."""
        attempts, notes = map(PastAttempt.from_json, record.attempts), map(Note.from_json, record.notes)
        replays = tuple(
            replace(replay, changes=cast("tuple[EditedValue, ...]", tuple(masking.changes(replay.changes))))
            for replay in record.replays
        )
        read = {"attempts": tuple(attempts), "notes": tuple(notes), "replays": replays}
        # A message that is shown takes the place of the record's.
        return cls.taken_from(record, **read, **_shown_content(record, masking))


def _shown_content(record: KeptDeadLetter, masking: Masking) -> Mapping[str, Any]:
    if record.operation is None:
        return masking.shown({"message": record.message})
    return content_of(record.operation, masking)


class CauseDocument(DeadLetterGroup):
    """A root cause, and the whole dead letter that is its sample: the latest open one, else the latest."""

    latest: Annotated[DeadLetterDocument | None, Field(description="null when it was removed.")]


class StartedReplay(Answer):
    """The operation that replays a dead letter."""

    operation_id: str
    dependency: str | None = None
