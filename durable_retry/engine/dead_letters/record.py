"""A dead letter: what will not succeed without a person, and what a person may do with it.

    open ──replay──> replayed        open, replayed ──archive──> archived ──restore──> where it was
      ^────undo─────────┘            (a replay that could not be started is undone)

The functions take a dead letter as it is stored and return it as it must be stored next. The caller makes
sure that nobody else changed it meanwhile.

Credentials in the headers of a caller's request are not stored, see `engine.operations.operation`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, Self

from durable_retry.engine.base.json_forms import JsonRecord, from_rfc3339, optional_to_rfc3339, to_rfc3339
from durable_retry.engine.base.masking import Masking
from durable_retry.engine.base.names import Category, DeadLetterReason
from durable_retry.engine.operations.operation import content_of, without_credentials

_VARIABLE: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # a UUID
    r"|\b(?=[a-z_\-]*[0-9])[0-9a-z_\-]{12,}\b"  # any long id with a digit in it
    r"|[0-9]+(?:\.[0-9]+)*",  # a number, a version, an address
    re.IGNORECASE,
)


def failure_group(
    *, dependency: str | None, category: str, reason: str, status_code: int | None, error: str | None
) -> str:
    """Return the group of a failure: equal for failures that differ in ids, times and numbers only.

    Args:
        dependency: None for a message that names none.
        category: Of the last failure.
        reason: Of `DeadLetterReason`.
        status_code: Of the last answer; None when there was none.
        error: As recorded with the last attempt; None when there was none.

    Returns:
        `g-` and 16 hexadecimal digits.
    """
    parts = (dependency or "", category, reason, str(status_code or ""), _VARIABLE.sub("#", error or ""))
    return "g-" + sha256("\x00".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


MAX_NOTES: Final = 100
MAX_MESSAGE_CHARS: Final = 100_000
"""A storage queue carries at most 64 KiB; other sources more, and a table row holds 1 MiB. What is longer is
cut, `message_chars` says so, and it is not replayed as it is."""


class Status(StrEnum):
    """The status of a dead letter."""

    OPEN = "open"
    REPLAYED = "replayed"
    ARCHIVED = "archived"


STATUS_MOVES: Final = frozenset(
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
    """An action that a dead letter of this status does not allow."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(f"the dead letter is {status}")


class FullError(Exception):
    """A dead letter has the most notes that it can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(JsonRecord):
    """One replay of a dead letter.

    Attributes:
        operation_id: The operation that carries it out.
        requested_at: When it was asked for.
        operation: JSON form of the `OperationInput` that it starts, without credentials; not shown.
        note: The person's; None when there is none.
        changes: What was edited: `{"pointer", "before", "after"}` of each place.
        replay_id: The bulk replay that it belongs to; None for a single one.
        dead_letter_id: The dead letter that it ended as; None unless it failed too.
        by: Who asked for it; None when nobody said.
    """

    operation_id: str
    requested_at: datetime
    operation: Mapping[str, Any]
    note: str | None = None
    changes: tuple[Mapping[str, Any], ...] = ()
    replay_id: str | None = None
    dead_letter_id: str | None = None
    by: str | None = None

    def shown(self, masking: Masking) -> dict[str, Any]:
        """Return one item of a document's `replays`."""
        return {
            "operation_id": self.operation_id,
            "requested_at": to_rfc3339(self.requested_at),
            "note": self.note,
            "changes": masking.changes(self.changes),
            "replay_id": self.replay_id,
            "dead_letter_id": self.dead_letter_id,
            "by": self.by,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRecord(JsonRecord):
    """One dead letter.

    Attributes:
        id: Derived from what failed, so that keeping it twice leaves one.
        operation_id: None for a message that never became an operation.
        key: Idempotency key of the operation, or the source's id of the message.
        source: Where it came from: `http`, `queue`, ...
        dependency: None when a message names none that is known.
        category: Of the last failure.
        reason: Why it needs a person.
        detail: One line for a person, without secrets.
        group: Equal for equal root causes.
        created_at: When it was written.
        first_failed_at: Start of the first attempt that is still known.
        attempts: JSON forms of `AttemptRecord`, oldest first.
        operation: JSON form of the `OperationInput`, without credentials; None for a message.
        message: Raw text, cut after `MAX_MESSAGE_CHARS`; None for an operation.
        message_chars: Length of the whole message; None for an operation, and in rows of older versions.
        archived_by: Who archived it; None when nobody said.
        correlation_id: The caller's; None when not given.
        replay_of: The dead letter whose replay this is; None for a first failure.
        status: Where it stands.
        archived_at: None unless archived.
        replays: Oldest first.
        notes: `{"text", "at", "by"}`, oldest first; `by` is missing in rows of older versions.
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
    message_chars: int | None = None
    archived_by: str | None = None

    @property
    def is_cut(self) -> bool:
        """Whether only the beginning of the message was kept."""
        kept = len(self.message or "")
        return kept >= MAX_MESSAGE_CHARS if self.message_chars is None else kept < self.message_chars

    def shown(self, masking: Masking) -> dict[str, Any]:
        """Return the document of `GET /api/dead-letters/{id}`."""
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
            **self._content(masking),
            "correlation_id": self.correlation_id,
            "first_failed_at": to_rfc3339(self.first_failed_at),
            "created_at": to_rfc3339(self.created_at),
            "status": self.status.value,
            "archived_at": optional_to_rfc3339(self.archived_at),
            "archived_by": self.archived_by,
            "replay_of": self.replay_of,
            "replays": [replayed.shown(masking) for replayed in self.replays],
            "notes": [{"by": None, **note} for note in self.notes],
        }

    def _content(self, masking: Masking) -> dict[str, Any]:
        if self.operation is None:
            return masking.shown({"message": self.message, "message_chars": self.message_chars})
        return content_of(self.operation, masking)


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
        message_chars=len(text),
    )


_SHORT_CHARS: Final = 10_000


def shortened(record: DeadLetterRecord, why: str) -> DeadLetterRecord:
    """Return a dead letter that storage refuses, with the beginning of its content only.

    Args:
        record: Too large, for example.
        why: The refusal, one line.
    """
    text = json.dumps(record.operation) if record.message is None else record.message
    return replace(
        record,
        detail=f"{record.detail}; only the beginning is kept, storage refused the whole: {why}",
        attempts=(),
        operation=None,
        message=text[:_SHORT_CHARS],
        message_chars=record.message_chars or len(text),
    )


def archived(record: DeadLetterRecord, now: datetime, by: str | None = None) -> DeadLetterRecord:
    """Return the dead letter archived; `by` is None when nobody said who did it.

    Raises:
        WrongStatusError: It is archived already.
    """
    return replace(_moved(record, Status.ARCHIVED), archived_at=now, archived_by=by)


def restored(record: DeadLetterRecord) -> DeadLetterRecord:
    """Return an archived dead letter with the status that it had before.

    Raises:
        WrongStatusError: It is not archived.
    """
    if record.status is not Status.ARCHIVED:
        raise WrongStatusError(record.status)
    target = Status.REPLAYED if record.replays else Status.OPEN
    return replace(_moved(record, target), archived_at=None, archived_by=None)


def noted(record: DeadLetterRecord, text: str, now: datetime, by: str | None = None) -> DeadLetterRecord:
    """Add a note; `by` is None when nobody said who wrote it.

    Raises:
        FullError: It has as many as it can hold.
    """
    if len(record.notes) >= MAX_NOTES:
        raise FullError(f"it has {MAX_NOTES} notes already")
    return replace(record, notes=(*record.notes, {"text": text, "at": to_rfc3339(now), "by": by}))


def replayed(record: DeadLetterRecord, started: Replay) -> DeadLetterRecord:
    """Return the dead letter with a replay added; stored before the start, and undone when the start fails.

    Raises:
        WrongStatusError: It is not open.
    """
    if record.status is not Status.OPEN:
        raise WrongStatusError(record.status)
    return replace(_moved(record, Status.REPLAYED), replays=(*record.replays, started))


def not_replayed(record: DeadLetterRecord) -> DeadLetterRecord:
    """Return the dead letter without its latest replay, which could not be started.

    Unchanged when that replay did start and has failed again meanwhile.

    Raises:
        WrongStatusError: It is not replayed.
    """
    if record.status is not Status.REPLAYED:
        raise WrongStatusError(record.status)
    # The replay did start: it has failed again. Only the answer to its start was lost.
    if record.replays[-1].dead_letter_id is not None:
        return record
    return replace(_moved(record, Status.OPEN), replays=record.replays[:-1])


def failed_again(record: DeadLetterRecord, dead_letter_id: str) -> DeadLetterRecord:
    """Return the dead letter with the id of the dead letter that its latest replay became."""
    if not record.replays:
        return record
    last = replace(record.replays[-1], dead_letter_id=dead_letter_id)
    return replace(record, replays=(*record.replays[:-1], last))


def _moved(record: DeadLetterRecord, status: Status) -> DeadLetterRecord:
    if (record.status, status) not in STATUS_MOVES:
        raise WrongStatusError(record.status)
    return replace(record, status=status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facets:
    """The values by which a dead letter can be found, besides status and time.

    Attributes:
        reason: Of `DeadLetterReason`.
        category: Of the last failure.
        dependency: "" for a message that names none.
        group: Of its root cause.
    """

    reason: str
    category: str
    dependency: str
    group: str

    @classmethod
    def of(cls, record: DeadLetterRecord) -> Self:
        """Return the facets of a dead letter."""
        return cls(
            reason=record.reason.value,
            category=record.category.value,
            dependency=record.dependency or "",
            group=record.group,
        )

    @property
    def lists(self) -> tuple[str, ...]:
        """The names of all lists that contain the dead letter."""
        return (
            "all",
            f"reason={self.reason}",
            f"category={self.category}",
            f"dependency={self.dependency}",
            f"group={self.group}",
        )


FACETS: Final = tuple(each.name for each in fields(Facets))
