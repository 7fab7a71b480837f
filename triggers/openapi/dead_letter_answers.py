"""Answers about dead letters and the outbox."""

from typing import Any

from pydantic import BaseModel

from engine.bulk_replay import ReplayState
from engine.dead_letter import Status
from engine.outbox import EventState
from engine.vocabulary import Category, DeadLetterReason
from triggers.openapi.operation_answers import Attempt, UtcInstant


class EditedPlace(BaseModel):
    """What an edit changed; a side that had nothing there lacks its key."""

    pointer: str
    before: Any = None
    after: Any = None


class ReplayNote(BaseModel):
    """One replay of a dead letter."""

    operation_id: str
    requested_at: UtcInstant
    note: str | None
    changes: list[EditedPlace]
    replay_id: str | None
    dead_letter_id: str | None


class Note(BaseModel):
    """What a person wrote."""

    text: str
    at: UtcInstant


class DeadLetterDocument(BaseModel):
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
    attempts: list[Attempt]
    request: dict[str, Any] | None = None
    handler: str | None = None
    input: Any = None
    message: str | None = None
    correlation_id: str | None
    first_failed_at: UtcInstant
    created_at: UtcInstant
    status: Status
    archived_at: UtcInstant | None
    replay_of: str | None
    replays: list[ReplayNote]
    notes: list[Note]


class DeadLetterPage(BaseModel):
    """Some dead letters, the newest first."""

    items: list[DeadLetterDocument]
    next_cursor: str | None


class DeadLetterSample(BaseModel):
    """One dead letter of a group."""

    id: str
    dependency: str | None
    category: Category
    reason: DeadLetterReason
    detail: str


class DeadLetterGroup(BaseModel):
    """Open dead letters of one root cause."""

    group: str
    count: int
    first_seen_at: UtcInstant
    last_seen_at: UtcInstant
    sample: DeadLetterSample


class DeadLetterGroupPage(BaseModel):
    """Some groups, the one seen last first."""

    items: list[DeadLetterGroup]
    next_cursor: str | None


class Waiting(BaseModel):
    """Open dead letters of one kind."""

    open: int
    oldest_at: UtcInstant | None
    oldest_age_seconds: float | None


class DeadLetterSummary(Waiting):
    """Open dead letters, in all and by kind."""

    by_reason: dict[str, Waiting]
    by_dependency: dict[str, Waiting]


class StartedReplay(BaseModel):
    """The operation that replays a dead letter."""

    operation_id: str


class OutboxEvent(BaseModel):
    """A follow-up message and where it stands."""

    event_id: str
    operation_id: str | None
    type: str
    state: EventState
    queue: str | None
    dependency: str | None
    path: str | None
    detail: str | None
    created_at: UtcInstant
    pending_since: UtcInstant
    sent_at: UtcInstant | None


class OutboxPage(BaseModel):
    """Some events of one state."""

    items: list[OutboxEvent]
    next_cursor: str | None


class StartedBulkReplay(BaseModel):
    """A bulk replay that was started, and how many open dead letters its filter found."""

    replay_id: str
    matched: int
    status_url: str


class MatchedDeadLetters(BaseModel):
    """How many open dead letters a filter finds."""

    matched: int


class FailedReplay(BaseModel):
    """A dead letter that could not be replayed and stays open."""

    id: str
    detail: str


class BulkReplayFilter(BaseModel):
    """Which dead letters; null means any."""

    status: Status | None
    reason: DeadLetterReason | None
    category: Category | None
    dependency: str | None
    group: str | None
    created_after: UtcInstant | None
    created_before: UtcInstant | None


class BulkReplayDocument(BaseModel):
    """How far a bulk replay got."""

    replay_id: str
    status: ReplayState
    filter: BulkReplayFilter
    rate_per_second: float
    note: str | None
    matched: int
    replayed: int
    skipped: int
    failed: int
    failures: list[FailedReplay]
    remaining: int
    waiting_until: UtcInstant | None
    created_at: UtcInstant
