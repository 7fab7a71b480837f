"""Answers about dead letters and the outbox."""

from typing import Any

from pydantic import BaseModel

from engine.dead_letter import Status
from engine.outbox import EventState
from engine.vocabulary import Category, DeadLetterReason
from triggers.openapi.operation_answers import Attempt, Instant


class EditedPlace(BaseModel):
    """What an edit changed; a side that had nothing there lacks its key."""

    pointer: str
    before: Any = None
    after: Any = None


class ReplayNote(BaseModel):
    """One replay of a dead letter."""

    operation_id: str
    requested_at: Instant
    note: str | None
    changes: list[EditedPlace]
    replay_id: str | None
    dead_letter_id: str | None


class Note(BaseModel):
    """What a person wrote."""

    text: str
    at: Instant


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
    first_failed_at: Instant
    created_at: Instant
    status: Status
    archived_at: Instant | None
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
    first_seen_at: Instant
    last_seen_at: Instant
    sample: DeadLetterSample


class DeadLetterGroupPage(BaseModel):
    """Some groups, the one seen last first."""

    items: list[DeadLetterGroup]
    next_cursor: str | None


class Waiting(BaseModel):
    """Open dead letters of one kind."""

    open: int
    oldest_at: Instant | None
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
    created_at: Instant
    pending_since: Instant
    sent_at: Instant | None


class OutboxPage(BaseModel):
    """Some events of one state."""

    items: list[OutboxEvent]
    next_cursor: str | None
