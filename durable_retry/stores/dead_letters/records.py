"""Dead letters in Azure Tables: operations, events and messages that need a person.

The row in `DeadLetters` is authoritative. Lists, counters and groups are in `DeadLetterIndex` and are written
after it (see docs/decisions/dead-letter-tables.md):

    keep     insert row ──> index
    change   intent ──> row ──> index ──> delete intent      maintenance finishes what a crash interrupted

An intent is written before a dead letter changes and deleted after; a crash leaves it for maintenance.
Keeping is idempotent: the id is derived from what failed. If the row exists, only the index is updated.
"""

import asyncio
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from durable_retry import clock
from durable_retry.engine.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import OPERATION, DeadLetterReason
from durable_retry.engine.dead_letters.record import (
    DeadLetterRecord,
    Replay,
    Status,
    WrongStatusError,
    failed_again,
    of_message,
    of_operation,
    replayed,
    shortened,
)
from durable_retry.stores import tables
from durable_retry.stores.dead_letters import index as dead_letter_index
from durable_retry.stores.dead_letters.index import AFTER_ALL
from durable_retry.stores.dead_letters.index import TABLE as INDEX_TABLE

_PARTITION: Final = "intent"


class Purpose(StrEnum):
    """The change that was begun."""

    MOVE = "move"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class Intent:
    """One intent; a dead letter may have several.

    Attributes:
        dead_letter_id: Whose.
        purpose: The change.
        key: Row key.
        begun_at: When it was written; stored as `announced_at`.
    """

    dead_letter_id: str
    purpose: Purpose
    key: str
    begun_at: datetime


async def begin_change(dead_letter_id: str, purpose: Purpose) -> Intent:
    """Write an intent before a dead letter changes."""
    intent = Intent(dead_letter_id, purpose, f"{dead_letter_id}|{uuid.uuid4()}", clock.now())
    row = {
        "PartitionKey": _PARTITION,
        "RowKey": intent.key,
        "dead_letter_id": dead_letter_id,
        "purpose": purpose.value,
        "announced_at": to_rfc3339(intent.begun_at),
    }
    await tables.merge(INDEX_TABLE, row)
    return intent


async def finish_change(intent: Intent) -> None:
    """Delete an intent after every step of its change is done."""
    await tables.delete(INDEX_TABLE, _PARTITION, intent.key)


async def left_over(limit: int) -> list[Intent]:
    """Return at most `limit` intents."""
    page = await tables.rows_between(INDEX_TABLE, _PARTITION, limit=limit)
    return [_intent(row) for row in page.rows]


async def intents_of(dead_letter_id: str) -> list[Intent]:
    """Return the intents of one dead letter."""
    begin, end = f"{dead_letter_id}|", f"{dead_letter_id}|{AFTER_ALL}"
    page = await tables.rows_between(INDEX_TABLE, _PARTITION, after=begin, before=end)
    return [_intent(row) for row in page.rows]


def _intent(row: tables.Row) -> Intent:
    return Intent(
        row["dead_letter_id"],
        Purpose(row["purpose"]),
        row["RowKey"],
        from_rfc3339(row["announced_at"]),
    )


TABLE: Final = "DeadLetters"

_ROW_KEY: Final = "record"
_ID: Final = re.compile(r"dl-[0-9a-f]{32}")
_TRIES: Final = 10
_READS_AT_ONCE: Final = 16

type RecordChange = Callable[[DeadLetterRecord], DeadLetterRecord]
"""Returns the changed dead letter, or raises when the change is not allowed."""


class NoSuchDeadLetterError(LookupError):
    """No dead letter has this id."""


class ContendedError(Exception):
    """Other processes kept changing the same dead letter."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A dead letter and the etag of its row's version."""

    record: DeadLetterRecord
    etag: str


async def keep_operation(entry: Mapping[str, Any], now: datetime) -> str:
    """Store the dead letter of an operation that did not succeed. Idempotent.

    Args:
        entry: `operation`, `category`, `reason`, `detail`, `attempts`, all as JSON; and `event_id` when it is
            not the operation that failed but one of its events.
        now: Aware UTC instant of its end.

    Returns:
        The dead letter's id, the same when called again for the same end.
    """
    dead_letter_id = dead_letter_id_of(entry["operation"], entry.get("event_id"))
    record = of_operation(dead_letter_id, entry, now)
    await _keep(record)
    if record.replay_of is not None:
        await _link(record.replay_of, record)
    return dead_letter_id


def dead_letter_id_of(operation: Mapping[str, Any], event_id: str | None = None) -> str:
    """Return the id of the dead letter that a run of an operation becomes if it fails.

    Args:
        operation: JSON form of its `OperationInput`.
        event_id: Of the event that failed in place of the operation; None when it is the operation.
    """
    failed = event_id or operation["operation_id"]
    return _id(failed, operation["replay_of"] or "", operation["created_at"])


async def keep_message(
    text: str, *, source: str, message_id: str, reason: DeadLetterReason, detail: str, now: datetime
) -> str:
    """Store the dead letter of a message that can never become an operation, with its raw text. Idempotent.

    Returns:
        The dead letter's id, the same when the same message comes again.
    """
    dead_letter_id = _id(source, message_id, text)
    record = of_message(
        dead_letter_id, text, source=source, message_id=message_id, reason=reason, detail=detail, now=now
    )
    await _keep(record)
    return dead_letter_id


async def keep_unreadable(operation_id: str, given: Any, detail: str, now: datetime) -> str:
    """Store the dead letter of an operation whose input cannot be read, with the raw input. Idempotent.

    Returns:
        The dead letter's id.
    """
    return await keep_message(
        json.dumps(given),
        source=OPERATION,
        message_id=operation_id,
        reason=DeadLetterReason.VALIDATION_FAILED,
        detail=detail,
        now=now,
    )


async def find_dead_letter(dead_letter_id: str) -> DeadLetterRecord | None:
    """Return a dead letter, or None when there is none of this id."""
    stored = await _read(dead_letter_id)
    return None if stored is None else stored.record


async def find_dead_letters(ids: Iterable[str]) -> list[DeadLetterRecord | None]:
    """Return several dead letters in the order of their ids, None for each that does not exist."""
    slots = asyncio.Semaphore(_READS_AT_ONCE)

    async def find(dead_letter_id: str) -> DeadLetterRecord | None:
        async with slots:
            return await find_dead_letter(dead_letter_id)

    return list(await asyncio.gather(*(find(dead_letter_id) for dead_letter_id in ids)))


async def change_dead_letter(dead_letter_id: str, change: RecordChange) -> DeadLetterRecord:
    """Change a dead letter, leaving its place in the lists.

    Raises:
        NoSuchDeadLetterError: There is none of this id.
        ContendedError: Other processes kept changing it.
        StorageRefusedError: The changed dead letter is too large; nothing is changed then.
        Exception: Whatever `change` raises; nothing is changed then.
    """
    changed: DeadLetterRecord | None = None
    for _ in range(_TRIES):
        stored = await _existing(dead_letter_id)
        if stored.record == changed:
            # The client repeats a request whose answer got lost, and then its own change is in its way.
            return changed
        changed = change(stored.record)
        if await tables.replace_version(TABLE, _row(changed), stored.etag):
            return changed
    raise ContendedError(dead_letter_id)


async def move_dead_letter(dead_letter_id: str, change: RecordChange) -> DeadLetterRecord:
    """Change the status of a dead letter, and with it the lists it stands in.

    Raises:
        NoSuchDeadLetterError: There is none of this id.
        ContendedError: Other processes kept changing it.
        StorageRefusedError: The changed dead letter is too large; nothing is changed then.
        Exception: Whatever `change` raises; nothing is changed then.
    """
    moved, intent = await begin_move(dead_letter_id, change, Purpose.MOVE)
    await finish_change(intent)
    return moved


async def begin_move(
    dead_letter_id: str, change: RecordChange, purpose: Purpose
) -> tuple[DeadLetterRecord, Intent]:
    """Change the status of a dead letter as the first step of a larger change.

    Returns:
        The changed dead letter, and the intent, which the caller finishes after its last step.

    Raises:
        NoSuchDeadLetterError: There is none of this id.
        ContendedError: Other processes kept changing it.
        StorageRefusedError: The changed dead letter is too large; nothing is changed then.
        Exception: Whatever `change` raises; nothing is changed then.
    """
    change((await _existing(dead_letter_id)).record)  # refuse before writing anything
    intent = await begin_change(dead_letter_id, purpose)
    try:
        changed = await change_dead_letter(dead_letter_id, change)
    except (WrongStatusError, NoSuchDeadLetterError, tables.StorageRefusedError):
        # Nothing was changed. After any other error the row may have changed, so the intent stays.
        await finish_change(intent)
        raise
    await settle(changed)
    return changed, intent


async def settle(record: DeadLetterRecord) -> None:
    """Update the lists to match the row; concurrent calls end in the same state.

    Another process can change the row and write the lists between our read and our write. So the row is read
    again afterwards.
    """
    for _ in range(_TRIES):
        await dead_letter_index.move_to_status(record)
        now = await find_dead_letter(record.id)
        if now is None or (now.status, now.archived_at) == (record.status, record.archived_at):
            return
        record = now
    raise ContendedError(record.id)


async def remove_archived(dead_letter_id: str, archived_at: datetime) -> bool:
    """Delete a dead letter; False when it is no longer archived since that instant."""
    stored = await _read(dead_letter_id)
    if stored is None:
        return True
    if (stored.record.status, stored.record.archived_at) != (Status.ARCHIVED, archived_at):
        return False
    return await tables.delete_version(TABLE, dead_letter_id, _ROW_KEY, stored.etag)


async def _keep(record: DeadLetterRecord) -> None:
    try:
        is_new = await tables.insert_if_absent(TABLE, _row(record))
    except tables.StorageRefusedError as error:
        record = shortened(record, str(error))
        is_new = await tables.insert_if_absent(TABLE, _row(record))
    if is_new:
        await dead_letter_index.list_open(record)
        return
    # An earlier execution may have crashed between the two writes; its row keeps its creation time.
    await settle((await _existing(record.id)).record)


async def _link(parent_id: str, failed: DeadLetterRecord) -> None:
    """Record a failed replay at the dead letter that was replayed; no error when its row was deleted.

    The parent is still open when the answer of the replay's start was lost; the failed replay shows that it
    was started, so the parent becomes `replayed` first. A row that has no room for it stays as it was; the
    new dead letter names its parent anyway.
    """
    with suppress(NoSuchDeadLetterError, tables.StorageRefusedError):
        with suppress(WrongStatusError):
            await move_dead_letter(parent_id, lambda record: replayed(record, _replay_by(failed)))
        await change_dead_letter(parent_id, lambda record: failed_again(record, failed.id))


def _replay_by(failed: DeadLetterRecord) -> Replay:
    operation = failed.operation or {}
    return Replay(
        operation_id=failed.operation_id or "",
        requested_at=from_rfc3339(operation["created_at"]),
        operation=operation,
    )


async def _existing(dead_letter_id: str) -> Stored:
    stored = await _read(dead_letter_id)
    if stored is None:
        raise NoSuchDeadLetterError(dead_letter_id)
    return stored


async def _read(dead_letter_id: str) -> Stored | None:
    known = _ID.fullmatch(dead_letter_id)
    found = await tables.read_version(TABLE, dead_letter_id, _ROW_KEY) if known else None
    if found is None:
        return None
    return Stored(
        DeadLetterRecord.from_json(json.loads(tables.unpacked("document", found.row))),
        found.etag,
    )


def _row(record: DeadLetterRecord) -> tables.Row:
    document = record.to_json()
    return {
        "PartitionKey": record.id,
        "RowKey": _ROW_KEY,
        "reason": document["reason"],
        "status": document["status"],
        "created_at": document["created_at"],
        **tables.packed("document", json.dumps(document)),
    }


def _id(*parts: str) -> str:
    digest = sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    return f"dl-{digest[:32]}"
