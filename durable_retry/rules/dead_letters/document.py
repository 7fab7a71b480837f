"""What people see of a dead letter."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, cast

from pydantic import Field

from durable_retry.base.answers import Answer, Instant, Unreadable, left_out
from durable_retry.base.json_forms import is_none
from durable_retry.base.masking import Masking
from durable_retry.base.names import Category, DeadLetterReason, Priority
from durable_retry.rules.dead_letters.record import (
    EditedValue,
    KeptDeadLetter,
    Note,
    Replay,
    Status,
)
from durable_retry.rules.operations.operation import content_of
from durable_retry.rules.operations.status import OperationContent
from durable_retry.rules.retry.history import FailureDetail, PastAttempt


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
    message: str | None = Field(default=None, exclude_if=is_none)
    message_chars: int | None = left_out(
        "Length of the whole message, of which `message` holds the first 100,000."
    )
    correlation_id: str | None
    order_key: str | None = left_out("Of its operation. Left out without one.")
    priority: Priority | None = Field(
        default=None,
        exclude_if=lambda priority: priority in {None, Priority.NORMAL},
        description="Of its operation. Left out where it is `normal`.",
    )
    limit_key: str | None = left_out("Of its operation. Left out without one.")
    debounce_key: str | None = left_out("Of its operation. Left out without one.")
    first_failed_at: Instant
    created_at: Instant
    status: Status
    archived_at: Instant | None
    archived_by: str | None
    failure: FailureDetail | None = left_out("More of the last failure. Left out where `detail` says all.")
    app_version: str | None = left_out(
        "The version of the app that gave it up. Left out without `APP_VERSION`."
    )
    replay_of: str | None
    replays: tuple[Replay, ...]
    notes: tuple[Note, ...]
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)

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


class StartedReplay(Answer):
    """The operation that replays a dead letter."""

    operation_id: str
    dependency: str | None = None
