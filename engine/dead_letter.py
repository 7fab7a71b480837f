"""A dead letter: what will not succeed without a person, and what a person may do with it.

    open ──replay──> replayed        open, replayed ──archive──> archived ──restore──> where it was
      ^────undo─────────┘            (a replay that could not be started is undone)

The functions take a dead letter as it stands and give it as it should be stored; whoever stores it makes sure
that nobody changed it meanwhile.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from engine.credentials import without_credentials
from engine.grouping import failure_group
from engine.instants import from_rfc3339, optional_from_rfc3339, optional_to_rfc3339, to_rfc3339
from engine.vocabulary import Category, DeadLetterReason

MAX_NOTES: Final = 100
MAX_MESSAGE_CHARS: Final = 100_000
"""A storage queue carries at most 64 KiB; other sources more, and a table row holds 1 MiB."""


class Status(StrEnum):
    """Where a dead letter stands."""

    OPEN = "open"
    REPLAYED = "replayed"
    ARCHIVED = "archived"


MOVES: Final = frozenset(
    {
        (Status.OPEN, Status.REPLAYED),
        (Status.REPLAYED, Status.OPEN),
        (Status.OPEN, Status.ARCHIVED),
        (Status.REPLAYED, Status.ARCHIVED),
        (Status.ARCHIVED, Status.OPEN),
        (Status.ARCHIVED, Status.REPLAYED),
    }
)
"""Every legal move."""


class WrongStatusError(Exception):
    """What was asked cannot be done to a dead letter of this status."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(f"the dead letter is {status}")


class FullError(Exception):
    """A dead letter has as many notes as it can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One replay of a dead letter.

    Attributes:
        operation_id: The operation that carries it out.
        requested_at: When it was asked for.
        operation: JSON form of the `OperationInput` that it starts, without credentials; not shown.
        note: The person's; None when there is none.
        changes: What was edited: `{"pointer", "before", "after"}` of each place.
        replay_id: The bulk replay that it belongs to; None for a single one.
        dead_letter_id: What became of it when it failed too; None otherwise.
    """

    operation_id: str
    requested_at: datetime
    operation: Mapping[str, Any]
    note: str | None = None
    changes: tuple[Mapping[str, Any], ...] = ()
    replay_id: str | None = None
    dead_letter_id: str | None = None

    def shown(self) -> dict[str, Any]:
        """Give one item of a document's `replays`."""
        return {
            "operation_id": self.operation_id,
            "requested_at": to_rfc3339(self.requested_at),
            "note": self.note,
            "changes": [dict(change) for change in self.changes],
            "replay_id": self.replay_id,
            "dead_letter_id": self.dead_letter_id,
        }

    def to_json(self) -> dict[str, Any]:
        """Give the stored form."""
        return self.shown() | {"operation": dict(self.operation)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        requested_at = from_rfc3339(data["requested_at"])
        return cls(**(dict(data) | {"requested_at": requested_at, "changes": tuple(data["changes"])}))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRecord:
    """One dead letter.

    Attributes:
        id: Derived from what failed, so that keeping it twice leaves one.
        operation_id: None for a message that never became an operation.
        key: Idempotency key of the operation, or the source's id of the message.
        source: Where it came from: `http`, `queue`, ...
        dependency: None when a message names none that is known.
        category: Of the last failure.
        reason: The contract's name.
        detail: One line for a person, without secrets.
        group: Equal for equal root causes.
        created_at: When it was written.
        first_failed_at: Start of the first attempt that is still known.
        attempts: JSON forms of `AttemptRecord`, oldest first.
        operation: JSON form of the `OperationInput`, without credentials; None for a message.
        message: Raw text; None for an operation.
        correlation_id: The caller's; None when not given.
        replay_of: The dead letter whose replay this is; None for a first failure.
        status: Where it stands.
        archived_at: None unless archived.
        replays: Oldest first.
        notes: `{"text", "at"}`, oldest first.
    """

    id: str
    operation_id: str | None
    key: str
    source: str
    dependency: str | None
    category: Category
    reason: DeadLetterReason
    detail: str
    group: str
    created_at: datetime
    first_failed_at: datetime
    attempts: tuple[Mapping[str, Any], ...] = ()
    operation: Mapping[str, Any] | None = None
    message: str | None = None
    correlation_id: str | None = None
    replay_of: str | None = None
    status: Status = Status.OPEN
    archived_at: datetime | None = None
    replays: tuple[Replay, ...] = ()
    notes: tuple[Mapping[str, Any], ...] = ()

    def shown(self) -> dict[str, Any]:
        """Give the document of `GET /api/dead-letters/{id}`."""
        return {
            "id": self.id,
            "operation_id": self.operation_id,
            "key": self.key,
            "source": self.source,
            "dependency": self.dependency,
            "category": self.category.value,
            "reason": self.reason.value,
            "detail": self.detail,
            "group": self.group,
            "attempts": [dict(attempt) for attempt in self.attempts],
            **self._content(),
            "correlation_id": self.correlation_id,
            "first_failed_at": to_rfc3339(self.first_failed_at),
            "created_at": to_rfc3339(self.created_at),
            "status": self.status.value,
            "archived_at": optional_to_rfc3339(self.archived_at),
            "replay_of": self.replay_of,
            "replays": [replayed.shown() for replayed in self.replays],
            "notes": [dict(note) for note in self.notes],
        }

    def to_json(self) -> dict[str, Any]:
        """Give the stored form."""
        return self.shown() | {
            "operation": None if self.operation is None else dict(self.operation),
            "message": self.message,
            "replays": [replayed.to_json() for replayed in self.replays],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; keys that are only shown are left aside."""
        values = {name: data[name] for name in cls.__slots__ if name in data}
        values |= {
            "category": Category(data["category"]),
            "reason": DeadLetterReason(data["reason"]),
            "created_at": from_rfc3339(data["created_at"]),
            "first_failed_at": from_rfc3339(data["first_failed_at"]),
            "attempts": tuple(data["attempts"]),
            "status": Status(data["status"]),
            "archived_at": optional_from_rfc3339(data["archived_at"]),
            "replays": tuple(Replay.from_json(item) for item in data["replays"]),
            "notes": tuple(data["notes"]),
        }
        return cls(**values)

    def _content(self) -> dict[str, Any]:
        if self.operation is None:
            return {"message": self.message}
        if self.operation["handler"] is not None:
            return {"handler": self.operation["handler"], "input": self.operation["input"]}
        return {"request": self.operation["request"]}


def of_operation(dead_letter_id: str, entry: Mapping[str, Any], now: datetime) -> DeadLetterRecord:
    """Make the dead letter of an operation that ended without success.

    Args:
        dead_letter_id: Its id.
        entry: `operation`, `category`, `reason`, `detail`, `attempts`, all as JSON.
        now: Aware UTC instant of its end.
    """
    operation, attempts = without_credentials(entry["operation"]), tuple(entry["attempts"])
    last = attempts[-1] if attempts else {}
    return DeadLetterRecord(
        id=dead_letter_id,
        operation_id=operation["operation_id"],
        key=operation["key"],
        source=operation["source"],
        dependency=operation["dependency"],
        category=Category(entry["category"]),
        reason=DeadLetterReason(entry["reason"]),
        detail=entry["detail"],
        group=failure_group(
            dependency=operation["dependency"],
            category=entry["category"],
            reason=entry["reason"],
            status_code=last.get("status_code"),
            error=last.get("error") or entry["detail"],
        ),
        created_at=now,
        first_failed_at=from_rfc3339(attempts[0]["started_at"]) if attempts else now,
        attempts=attempts,
        operation=operation,
        correlation_id=operation["correlation_id"],
        replay_of=operation["replay_of"],
    )


def of_message(
    dead_letter_id: str,
    text: str,
    *,
    source: str,
    message_id: str,
    reason: DeadLetterReason,
    detail: str,
    now: datetime,
) -> DeadLetterRecord:
    """Make the dead letter of a message that did not become an operation."""
    return DeadLetterRecord(
        id=dead_letter_id,
        operation_id=None,
        key=message_id,
        source=source,
        dependency=None,
        category=Category.MALFORMED,
        reason=reason,
        detail=detail,
        group=failure_group(
            dependency=None,
            category=Category.MALFORMED.value,
            reason=reason.value,
            status_code=None,
            error=f"{source} {detail}",
        ),
        created_at=now,
        first_failed_at=now,
        message=text[:MAX_MESSAGE_CHARS],
    )


def archived(record: DeadLetterRecord, now: datetime) -> DeadLetterRecord:
    """Put a dead letter away.

    Raises:
        WrongStatusError: It is archived already.
    """
    return replace(_moved(record, Status.ARCHIVED), archived_at=now)


def restored(record: DeadLetterRecord) -> DeadLetterRecord:
    """Bring an archived dead letter back to where it was.

    Raises:
        WrongStatusError: It is not archived.
    """
    if record.status is not Status.ARCHIVED:
        raise WrongStatusError(record.status)
    target = Status.REPLAYED if record.replays else Status.OPEN
    return replace(_moved(record, target), archived_at=None)


def noted(record: DeadLetterRecord, text: str, now: datetime) -> DeadLetterRecord:
    """Add a note.

    Raises:
        FullError: It has as many as it can hold.
    """
    if len(record.notes) >= MAX_NOTES:
        raise FullError(f"it has {MAX_NOTES} notes already")
    return replace(record, notes=(*record.notes, {"text": text, "at": to_rfc3339(now)}))


def replayed(record: DeadLetterRecord, started: Replay) -> DeadLetterRecord:
    """Say that a dead letter is being replayed; told before the start, and undone when that fails.

    Raises:
        WrongStatusError: It is not open.
    """
    if record.status is not Status.OPEN:
        raise WrongStatusError(record.status)
    return replace(_moved(record, Status.REPLAYED), replays=(*record.replays, started))


def not_replayed(record: DeadLetterRecord) -> DeadLetterRecord:
    """Undo the latest replay, which could not be started; not when it was, and has failed again by now.

    Raises:
        WrongStatusError: It is not replayed.
    """
    if record.status is not Status.REPLAYED:
        raise WrongStatusError(record.status)
    if record.replays[-1].dead_letter_id is not None:
        return record
    return replace(_moved(record, Status.OPEN), replays=record.replays[:-1])


def failed_again(record: DeadLetterRecord, dead_letter_id: str) -> DeadLetterRecord:
    """Note at a dead letter that its latest replay became a dead letter too."""
    if not record.replays:
        return record
    last = replace(record.replays[-1], dead_letter_id=dead_letter_id)
    return replace(record, replays=(*record.replays[:-1], last))


def _moved(record: DeadLetterRecord, status: Status) -> DeadLetterRecord:
    if (record.status, status) not in MOVES:
        raise WrongStatusError(record.status)
    return replace(record, status=status)
