"""Dead letters in Azure Tables: operations, events and messages that need a person.

The row in `DeadLetters` is authoritative. The lists are in `DeadLetterIndex` and are written after it (see
docs/decisions/dead-letter-tables.md):

    keep     insert row ──> index
    change   intent ──> row ──> index ──> delete intent      maintenance finishes what a crash interrupted

An intent is written before a dead letter changes and deleted after; a crash leaves it for maintenance.
Keeping is idempotent: the id is derived from what failed. If the row exists, only the index is updated.
"""

import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from durable_retry.base.answers import read_or
from durable_retry.base.errors import (
    ContendedError,
    NoSuchDeadLetterError,
    StorageRefusedError,
    UnreadableDeadLetterError,
)
from durable_retry.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.base.names import OPERATION, DeadLetterReason
from durable_retry.dead_letters import index as dead_letter_index
from durable_retry.plugins import features_of
from durable_retry.rules.dead_letters.record import (
    KeptDeadLetter,
    Replay,
    Status,
    WrongStatusError,
    failed_again,
    of_message,
    of_operation,
    replayed,
    shortened,
    unreadable_record,
)
from durable_retry.rules.facts import DeadLetterKept
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import map_bounded
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import app_settings
from durable_retry.storage import contents, tables
from durable_retry.telemetry.facts import report

_INTENTS: Final = "intent"


class Purpose(StrEnum):
    """The change that was begun."""

    MOVE = "move"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class Intent:
    """One intent; a dead letter may have several."""

    dead_letter_id: str
    purpose: Purpose
    key: str  # row key
    begun_at: datetime  # when it was written; stored as `announced_at`


async def begin_change(dead_letter_id: str, purpose: Purpose) -> Intent:
    """Write an intent before a dead letter changes."""
    intent = Intent(dead_letter_id, purpose, f"{dead_letter_id}|{uuid.uuid4()}", clock.now())
    row = {
        "PartitionKey": _INTENTS,
        "RowKey": intent.key,
        "dead_letter_id": dead_letter_id,
        "purpose": purpose.value,
        "announced_at": to_rfc3339(intent.begun_at),
    }
    await tables.merge(dead_letter_index.TABLE, row)
    return intent


async def finish_change(intent: Intent) -> None:
    """Delete an intent after every step of its change is done."""
    await tables.delete(dead_letter_index.TABLE, _INTENTS, intent.key)


async def left_over(limit: int, cursor: str | None = None) -> tuple[list[Intent], str | None]:
    """Return at most `limit` intents, and the cursor of the next ones; None at the end."""
    page = await tables.rows_between(dead_letter_index.TABLE, _INTENTS, limit=limit, cursor=cursor)
    return contents.readable(dead_letter_index.TABLE, page.rows, _intent_of_row), page.cursor


async def intents_of(dead_letter_id: str) -> list[Intent]:
    begin, end = f"{dead_letter_id}|", f"{dead_letter_id}|{dead_letter_index.AFTER_ALL}"
    page = await tables.rows_between(dead_letter_index.TABLE, _INTENTS, after=begin, before=end)
    return contents.readable(dead_letter_index.TABLE, page.rows, _intent_of_row)


def _intent_of_row(row: tables.Row) -> Intent:
    return Intent(
        row["dead_letter_id"], Purpose(row["purpose"]), row["RowKey"], from_rfc3339(row["announced_at"])
    )


TABLE: Final = "DeadLetters"

_ROW_KEY: Final = "record"
_ID: Final = re.compile(r"dl-[0-9a-f]{32}")
_TRIES: Final = 10
_READS_AT_ONCE: Final = 16

type RecordChange = Callable[[KeptDeadLetter], KeptDeadLetter]
"""Returns the changed dead letter, or raises when the change is not allowed."""


async def keep_operation(entry: Mapping[str, Any], now: datetime) -> str:
    """Store the dead letter of an operation, and return its id, which is the same for the same end.

    The entry has `operation`, `category`, `reason`, `detail`, `attempts`, all as JSON; and `event_id` when it
    is not the operation that failed but one of its events.
    """
    record = of_operation(entry, now)
    await _keep_record(record, () if "event_id" in entry else await _rows_of_features(record, now))
    if record.replay_of is not None:
        await _link_to_parent(record.replay_of, record)
    if "event_id" not in entry:
        report(DeadLetterKept(entry["operation"], _error_in(entry)))
    return record.id


def _error_in(entry: Mapping[str, Any]) -> str:
    """Return the last attempt's error, the reason and the detail of a dead letter, a line each."""
    errors = [attempt.get("error") for attempt in entry["attempts"][-1:]]
    return "\n".join(text for text in (*errors, entry["reason"], entry["detail"]) if text)


async def keep_message(record: KeptDeadLetter) -> str:
    """Store the dead letter of a message, and return its id. Idempotent."""
    await _keep_record(record)
    return record.id


async def keep_unreadable(operation_id: str, raw_input: Any, detail: str, now: datetime) -> str:
    """Store the dead letter of an operation whose input cannot be read, with the raw input. Idempotent."""
    record = of_message(
        json.dumps(raw_input),
        source=OPERATION,
        message_id=operation_id,
        reason=DeadLetterReason.VALIDATION_FAILED,
        detail=detail,
        now=now,
    )
    return await keep_message(record)


async def find_dead_letter(dead_letter_id: str) -> KeptDeadLetter | None:
    """Return a dead letter, or None when there is none of this id; `unreadable` where it cannot be read."""
    version = await _read_version(dead_letter_id)
    return None if version is None else _record_or_stand_in(version.row)


async def find_dead_letters(ids: Iterable[str]) -> list[KeptDeadLetter | None]:
    """Return several dead letters in the order of their ids, None for each that does not exist."""
    return await map_bounded(find_dead_letter, ids, _READS_AT_ONCE)


async def change_dead_letter(dead_letter_id: str, change: RecordChange) -> KeptDeadLetter:
    """Change a dead letter, leaving its place in the lists.

    Raises:
        StorageRefusedError: The changed dead letter is too large; nothing is changed then.
        Exception: Whatever `change` raises; nothing is changed then.
    """
    changed: KeptDeadLetter | None = None

    def rule(record: KeptDeadLetter | None) -> KeptDeadLetter:
        nonlocal changed
        # The client repeats a request whose answer got lost, and may then find its own change stored.
        if changed is None or record != changed:
            changed = change(_existing_record(dead_letter_id, record))
        return changed

    if _ID.fullmatch(dead_letter_id) is None:
        raise NoSuchDeadLetterError(dead_letter_id)
    return await tables.change_row(
        TABLE, _dead_letter_keys(dead_letter_id), rule, read=_record_or_stand_in, write=_row_of_record
    )


async def move_dead_letter(dead_letter_id: str, change: RecordChange) -> KeptDeadLetter:
    """Change the status of a dead letter, and with it the lists it stands in.

    It raises what `change_dead_letter` raises.
    """
    change(await existing_dead_letter(dead_letter_id))  # refuse before writing anything
    moved, intent = await begin_move(dead_letter_id, change, Purpose.MOVE)
    await finish_change(intent)
    return moved


async def begin_move(
    dead_letter_id: str, change: RecordChange, purpose: Purpose
) -> tuple[KeptDeadLetter, Intent]:
    """Change the status of a dead letter as the first step of a larger change.

    The caller has found the change allowed, and finishes the intent after its last step. It raises what
    `change_dead_letter` raises.
    """
    intent = await begin_change(dead_letter_id, purpose)
    try:
        changed = await change_dead_letter(dead_letter_id, change)
    except (WrongStatusError, NoSuchDeadLetterError, UnreadableDeadLetterError, StorageRefusedError):
        # Nothing was changed. After any other error the row may have changed, so the intent stays.
        await finish_change(intent)
        raise
    await settle(changed)
    return changed, intent


async def settle(record: KeptDeadLetter) -> None:
    """Update the lists to match the row; concurrent calls end in the same state.

    Another process can change the row and write the lists between our read and our write. So the row is read
    again afterwards.
    """
    for _ in range(_TRIES):
        await dead_letter_index.move_to_status(record)
        current = await find_dead_letter(record.id)
        if current is None or current.unreadable is not None:
            return
        if (current.status, current.archived_at) == (record.status, record.archived_at):
            return
        record = current
    raise ContendedError(record.id)


async def remove_archived(dead_letter_id: str, archived_at: datetime) -> bool:
    """Delete a dead letter; False when it is no longer archived since that instant."""
    version = await _read_version(dead_letter_id)
    if version is None:
        return True
    record = _record_or_stand_in(version.row)
    # For an unreadable one, only the index has the archiving time.
    since = archived_at if record.unreadable is not None else record.archived_at
    if (record.status, since) != (Status.ARCHIVED, archived_at):
        return False
    # Only this version: somebody may restore it at this moment.
    return await tables.delete_version(TABLE, dead_letter_id, _ROW_KEY, version.etag)


async def _rows_of_features(record: KeptDeadLetter, now: datetime) -> list[tables.Row]:
    parts = (record.operation or {}).get("parts")
    hooks = [imported(feature.failure) for feature in features_of(parts) if feature.failure]
    return [row for rows_of in hooks for row in await rows_of(record, now)]


async def _keep_record(record: KeptDeadLetter, feature_rows: Sequence[tables.Row] = ()) -> None:
    record = replace(record, app_version=app_settings().app_version or None)
    try:
        is_new = await _insert_record(record, feature_rows)
    except StorageRefusedError as error:
        # Too large for a row. A person can act on a shortened dead letter, but not on a missing one.
        record = shortened(record, str(error))
        is_new = await _insert_record(record, feature_rows)
    if is_new:
        await dead_letter_index.list_record(record)
        return
    # An earlier execution may have crashed between the two writes; its row keeps its creation time.
    with suppress(UnreadableDeadLetterError):  # It is stored, and shown as one that cannot be read.
        await settle(await existing_dead_letter(record.id))


async def _insert_record(record: KeptDeadLetter, feature_rows: Sequence[tables.Row]) -> bool:
    row = _row_of_record(record)
    if not feature_rows:
        return await tables.insert_if_absent(TABLE, row)
    return await tables.transact(TABLE, [("create", created) for created in (row, *feature_rows)])


async def _link_to_parent(parent_id: str, failed: KeptDeadLetter) -> None:
    """Record a failed replay at the dead letter that was replayed; no error when its row was deleted.

    The parent is still open when the answer of the replay's start was lost; the failed replay shows that it
    was started, so the parent becomes `replayed` first. A row that has no room for it stays as it was; the
    new dead letter names its parent anyway.
    """
    with suppress(NoSuchDeadLetterError, UnreadableDeadLetterError, StorageRefusedError):
        with suppress(WrongStatusError):
            await move_dead_letter(parent_id, lambda record: replayed(record, _replay_by(failed)))
        await change_dead_letter(parent_id, lambda record: failed_again(record, failed.id))


def _replay_by(failed: KeptDeadLetter) -> Replay:
    operation = failed.operation or {}
    return Replay(
        operation_id=failed.operation_id or "",
        requested_at=from_rfc3339(operation["created_at"]),
        operation=operation,
    )


async def existing_dead_letter(dead_letter_id: str) -> KeptDeadLetter:
    """Return a dead letter to act on it."""
    return _existing_record(dead_letter_id, await find_dead_letter(dead_letter_id))


def _existing_record(dead_letter_id: str, record: KeptDeadLetter | None) -> KeptDeadLetter:
    if record is None:
        raise NoSuchDeadLetterError(dead_letter_id)
    if record.unreadable is not None:
        raise UnreadableDeadLetterError(record.unreadable)
    return record


async def _read_version(dead_letter_id: str) -> tables.Versioned | None:
    is_id = _ID.fullmatch(dead_letter_id) is not None
    return await tables.read_version(TABLE, dead_letter_id, _ROW_KEY) if is_id else None


def _record_or_stand_in(row: tables.Row) -> KeptDeadLetter:
    def unreadable(why: str) -> KeptDeadLetter:
        columns = {name: row.get(name) for name in ("status", "reason", "created_at")}
        return unreadable_record(row["PartitionKey"], why, **columns)

    return read_or(lambda: _record_of_row(row), unreadable)


def _record_of_row(row: tables.Row) -> KeptDeadLetter:
    return KeptDeadLetter.from_json_text(contents.unpacked("document", row))


def _dead_letter_keys(dead_letter_id: str) -> tables.Row:
    return {"PartitionKey": dead_letter_id, "RowKey": _ROW_KEY}


def _row_of_record(record: KeptDeadLetter) -> tables.Row:
    document = record.to_json()
    return _dead_letter_keys(record.id) | {
        "reason": document["reason"],
        "status": document["status"],
        "created_at": document["created_at"],
        **contents.packed("document", json.dumps(document)),
    }
