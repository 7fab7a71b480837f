"""A dead letter: what will not succeed without a person, and what a person may do with it.

    open ──replay──> replayed        open, replayed ──archive──> archived ──restore──> where it was
      ^────undo─────────┘            (a replay that could not be started is undone)

The functions take a dead letter as it is stored and return it as it must be stored next. The caller makes
sure that nobody else changed it meanwhile.

Credentials in the headers of a caller's request are not stored, see `rules.operations.operation`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, Final, NotRequired, TypedDict

from pydantic import Field

from durable_retry.base.answers import read_or
from durable_retry.base.json_forms import NOT_STORED, JsonShape, from_ms, from_rfc3339, to_rfc3339
from durable_retry.base.masking import MASKED
from durable_retry.base.names import TURN_NAMES, Category, DeadLetterReason, Priority
from durable_retry.rules.operations.operation import without_credentials
from durable_retry.rules.retry.history import FailureDetail

_VARIABLE: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # a UUID
    r"|\b(?=[a-z_\-]*[0-9])[0-9a-z_\-]{12,}\b"  # any long id with a digit in it
    r"|[0-9]+(?:\.[0-9]+)*",  # a number, a version, an address
    re.IGNORECASE,
)


def failure_group(
    *,
    category: str,
    reason: str,
    error: str | None,
    dependency: str | None = None,
    status_code: int | None = None,
) -> str:
    """Return `g-` and 16 hexadecimal digits, equal for failures that differ in ids and numbers only."""
    parts = (dependency or "", category, reason, str(status_code or ""), _VARIABLE.sub("#", error or ""))
    return "g-" + sha256("\x00".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


NAME_CHARS: Final = 300
"""Characters to which an index row cuts each name of a dead letter."""

FACETS: Final = ("reason", "category", "dependency", "group")
"""Names of the values by which a dead letter can be found, besides status and time."""

MAX_NOTES: Final = 100

type NoteText = Annotated[str, Field(min_length=1, max_length=4_000)]

MAX_MESSAGE_CHARS: Final = 100_000
"""A storage queue carries at most 64 KiB; other sources more, and a table row holds 1 MiB. A longer message
is cut, which `message_chars` shows, and can only be replayed with an edited body."""


class Status(StrEnum):
    """The status of a dead letter."""

    OPEN = "open"
    REPLAYED = "replayed"
    ARCHIVED = "archived"


class WrongStatusError(Exception):
    """An action that a dead letter of this status does not allow."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(f"the dead letter is {status}")


class FullError(Exception):
    """A dead letter has the most notes that it can hold."""


class EditedValue(TypedDict):
    """What an edit changed; a side that had nothing there lacks its key."""

    pointer: str
    before: NotRequired[Any]
    after: NotRequired[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(JsonShape):
    """One replay of a dead letter.

    Attributes:
        operation_id: The operation that carries it out.
        operation: JSON form of the `OperationInput` that it starts, without credentials; not shown.
        note: The person's; None when there is none.
        action_id: The bulk action that it belongs to; None for a single one.
        dead_letter_id: The dead letter that it ended as; None unless it failed too.
        from_step: The remembered step from which its handler was run again; None for the usual.
    """

    operation_id: str
    requested_at: datetime
    operation: Annotated[Mapping[str, Any], Field(exclude=True, default_factory=dict)]
    note: str | None = None
    changes: tuple[EditedValue, ...] = ()
    action_id: str | None = None
    dead_letter_id: str | None = None
    by: str | None = None
    from_step: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(JsonShape):
    """What a person wrote; `by` is None when nobody said who."""

    text: str
    at: datetime
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDeadLetter(JsonShape):
    id: str  # derived from what failed, so that keeping it twice leaves one
    operation_id: str | None = None  # None for a message that never became an operation
    key: str  # idempotency key of the operation, or the source's id of the message
    source: str  # where it came from: `http`, `queue`, ...
    dependency: str | None = None  # None when a message names none that is known
    category: Category
    reason: DeadLetterReason  # why it needs a person
    detail: str  # one line for a person, without secrets
    group: str  # equal for equal root causes
    created_at: datetime
    first_failed_at: datetime  # start of the first attempt that is still known
    attempts: tuple[Mapping[str, Any], ...] = ()  # JSON forms of `PastAttempt`, oldest first
    # JSON form of the `OperationInput`, without credentials; None for a message.
    operation: Mapping[str, Any] | None = None
    message: str | None = None  # raw text, cut after `MAX_MESSAGE_CHARS`; None for an operation
    correlation_id: str | None = None  # the caller's; None when not given
    replay_of: str | None = None  # the dead letter whose replay this is; None for a first failure
    status: Status = Status.OPEN
    archived_at: datetime | None = None  # None unless archived
    replays: tuple[Replay, ...] = ()  # oldest first
    notes: tuple[Mapping[str, Any], ...] = ()  # JSON forms of `Note`, oldest first
    # Length of the whole message; None for an operation.
    message_chars: int | None = None
    archived_by: str | None = None  # who archived it; None when nobody said
    # More of the last attempt's failure; None where its line says all.
    failure: FailureDetail | None = None
    # The version of the app that gave it up; None where `APP_VERSION` is not set.
    app_version: str | None = None
    # Why its row cannot be read, of what is shown in its place; such a record is never stored.
    unreadable: Annotated[str | None, NOT_STORED] = None

    @property
    def handler(self) -> str | None:
        """The handler that failed; None for a request or a message."""
        return self._text_of("handler")

    @property
    def order_key(self) -> str | None:
        """The order key of its operation; None without one."""
        return self._text_of("parts", "order", "key")

    @property
    def priority(self) -> Priority | None:
        """The priority of its operation; None for a message."""
        return None if self.operation is None else Priority(self._text_of("priority") or "normal")

    @property
    def limit_key(self) -> str | None:
        """The limit key of its operation; None without one."""
        return self._text_of("limit_key")

    @property
    def debounce_key(self) -> str | None:
        """The debounce key of its operation; None without one."""
        return self._text_of("parts", "debounce", "key")

    @property
    def is_unclear(self) -> bool:
        """Whether it is unknown if one of its attempts took effect."""
        if self.category is Category.DEADLINE_EXCEEDED:
            # Its deadline came before the end of an attempt was known.
            return (self.operation or {}).get("acted_before") is True
        # An attempt that succeeded did take effect; only its commit failed.
        has_succeeded = bool(self.attempts) and self.attempts[-1].get("category") is None
        return self.category is Category.AMBIGUOUS and self.operation is not None and not has_succeeded

    @property
    def latest_attempt(self) -> int | None:
        """The number of its latest attempt; None where none is known."""
        return self.attempts[-1]["number"] if self.attempts else None

    @property
    def names(self) -> dict[str, str]:
        """The texts by which a search finds it, without those that it lacks."""
        names = ("key", "operation_id", "correlation_id", "detail", "app_version", *TURN_NAMES)
        return {name: text for name in names if (text := getattr(self, name))}

    @property
    def facets(self) -> dict[str, str]:
        """The values by which it can be found; "" for the dependency of a message that names none."""
        return {name: str(getattr(self, name) or "") for name in FACETS}

    @property
    def listed(self) -> dict[str, str]:
        """What a row of its lists repeats of it, for filters, searches and counts."""
        # As JSON, whose ASCII takes any character that a message can have.
        names = json.dumps({name: value[:NAME_CHARS] for name, value in self.names.items()})
        limit_key = {} if self.limit_key is None else {"limit_key": json.dumps(self.limit_key)}
        return {**self.facets, "names": names, **limit_key}

    def _text_of(self, *names: str) -> str | None:
        value: Any = self.operation
        for name in names:
            value = (value or {}).get(name)
        return None if value is None else str(value)

    @property
    def is_cut(self) -> bool:
        """Whether only the beginning of the message was kept."""
        return self.message_chars is not None and len(self.message or "") < self.message_chars


def dead_letter_id_of(operation: Mapping[str, Any], event_id: str | None = None) -> str:
    """Return the id of the dead letter of a run, or of its event that failed in its place."""
    failed = event_id or operation["operation_id"]
    return _dead_letter_id(failed, operation.get("replay_of") or "", operation["created_at"])


def _dead_letter_id(*parts: str) -> str:
    digest = sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    return f"dl-{digest[:32]}"


def of_operation(entry: Mapping[str, Any], now: datetime) -> KeptDeadLetter:
    """Make the dead letter of `operation`, `category`, `reason`, `detail` and `attempts`, all as JSON."""
    operation, attempts = without_credentials(entry["operation"]), tuple(entry["attempts"])
    last = attempts[-1] if attempts else {}
    return KeptDeadLetter(
        id=dead_letter_id_of(entry["operation"], entry.get("event_id")),
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
        correlation_id=operation.get("correlation_id"),
        replay_of=operation.get("replay_of"),
        failure=FailureDetail.from_json(entry["failure"]) if entry.get("failure") else None,
    )


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The deliveries of a message before it was given up."""

    count: int
    first_at: datetime | None = None  # None where it is not known any more
    last_at: datetime | None = None  # as `first_at`

    def __str__(self) -> str:
        first = "" if self.first_at is None else f", the first at {to_rfc3339(self.first_at)}"
        last = "" if self.last_at is None else f", the last at {to_rfc3339(self.last_at)}"
        return f"deliveries: {self.count}{first}{last}"


def of_message(
    text: str,
    *,
    source: str,
    message_id: str,
    reason: DeadLetterReason,
    detail: str,
    now: datetime,
    deliveries: Deliveries | None = None,
) -> KeptDeadLetter:
    """Make the dead letter of a message that can never become an operation; it has the raw text.

    The same message gets the same id.

    Args:
        deliveries: Before it was given up; None where it was refused at once.
    """
    detail = MASKED.text(detail)  # A check of the app's own may quote what it refuses.
    first_at = None if deliveries is None else deliveries.first_at or deliveries.last_at
    return KeptDeadLetter(
        id=_dead_letter_id(source, message_id, text),
        key=message_id,
        source=source,
        category=Category.MALFORMED,
        reason=reason,
        detail=detail if deliveries is None else f"{detail}; {deliveries}",
        group=failure_group(category=Category.MALFORMED, reason=reason, error=f"{source} {detail}"),
        created_at=now,
        first_failed_at=first_at or now,
        message=text[:MAX_MESSAGE_CHARS],
        message_chars=len(text),
    )


def unreadable_record(
    dead_letter_id: str, why: str, *, status: Any, reason: Any, created_at: Any
) -> KeptDeadLetter:
    """Return what is shown of a dead letter whose document cannot be read.

    The status and the like come from the columns of its row beside the document, where these can be read.
    """
    made_at = read_or(lambda: from_rfc3339(created_at), lambda _: from_ms(0))
    reason = read_or(lambda: DeadLetterReason(reason), lambda _: DeadLetterReason.POISON_MESSAGE)
    detail = f"This dead letter cannot be read: {why}"
    return KeptDeadLetter(
        id=dead_letter_id,
        key="",
        source="",
        category=Category.MALFORMED,
        reason=reason,
        detail=detail,
        group=failure_group(category="", reason=reason, error=detail),
        created_at=made_at,
        first_failed_at=made_at,
        status=read_or(lambda: Status(status), lambda _: Status.OPEN),
        unreadable=why,
    )


_SHORT_CHARS: Final = 10_000


def shortened(record: KeptDeadLetter, why: str) -> KeptDeadLetter:
    """Return a dead letter that storage refuses for a reason, with the beginning of its content only."""
    text = json.dumps(record.operation) if record.message is None else record.message
    return replace(
        record,
        detail=f"{record.detail}; only the beginning is kept, storage refused the whole: {why}",
        attempts=(),
        failure=None,
        operation=None,
        message=text[:_SHORT_CHARS],
        message_chars=record.message_chars or len(text),
    )


def archived(record: KeptDeadLetter, now: datetime, by: str | None = None) -> KeptDeadLetter:
    """Return the dead letter archived, by whom if somebody said it; WrongStatusError where it is already."""
    return replace(_record_with_status(record, Status.ARCHIVED), archived_at=now, archived_by=by)


def restored(record: KeptDeadLetter) -> KeptDeadLetter:
    """Return an archived dead letter with the status that it had before; WrongStatusError for another."""
    if record.status is not Status.ARCHIVED:
        raise WrongStatusError(record.status)
    target = Status.REPLAYED if record.replays else Status.OPEN
    return replace(_record_with_status(record, target), archived_at=None, archived_by=None)


def noted(record: KeptDeadLetter, text: str, now: datetime, by: str | None = None) -> KeptDeadLetter:
    """Add a note, by whom if somebody said it; FullError where there are as many as it can hold."""
    if len(record.notes) >= MAX_NOTES:
        raise FullError(f"it has {MAX_NOTES} notes already")
    return replace(record, notes=(*record.notes, Note(text=text, at=now, by=by).to_json()))


def replayed(record: KeptDeadLetter, started: Replay) -> KeptDeadLetter:
    """Return the dead letter with a replay added; stored before the start, and undone when the start fails.

    Raises:
        WrongStatusError: It is not open.
    """
    if record.status is not Status.OPEN:
        raise WrongStatusError(record.status)
    return replace(_record_with_status(record, Status.REPLAYED), replays=(*record.replays, started))


def failed_again(record: KeptDeadLetter, dead_letter_id: str) -> KeptDeadLetter:
    if not record.replays:
        return record
    last = replace(record.replays[-1], dead_letter_id=dead_letter_id)
    return replace(record, replays=(*record.replays[:-1], last))


def _record_with_status(record: KeptDeadLetter, status: Status) -> KeptDeadLetter:
    if record.status is status:
        raise WrongStatusError(record.status)
    return replace(record, status=status)
