"""Intents: what is being changed in several rows, so that upkeep finishes what a crash cut off."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from durable_retry import clock
from durable_retry.engine.base.instants import from_rfc3339, to_rfc3339
from durable_retry.stores.dead_letters.index import AFTER_ALL
from durable_retry.stores.dead_letters.index import TABLE as INDEX_TABLE
from durable_retry.stores.storage import contents, tables

_PARTITION: Final = "intent"


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


async def left_over(limit: int, cursor: str | None = None) -> tuple[list[Intent], str | None]:
    """Return at most `limit` intents, and the cursor of the next ones; None at the end."""
    page = await tables.rows_between(INDEX_TABLE, _PARTITION, limit=limit, cursor=cursor)
    return contents.readable(INDEX_TABLE, page.rows, _intent_of_row), page.cursor


async def intents_of(dead_letter_id: str) -> list[Intent]:
    """Return the intents of one dead letter."""
    begin, end = f"{dead_letter_id}|", f"{dead_letter_id}|{AFTER_ALL}"
    page = await tables.rows_between(INDEX_TABLE, _PARTITION, after=begin, before=end)
    return contents.readable(INDEX_TABLE, page.rows, _intent_of_row)


def _intent_of_row(row: tables.Row) -> Intent:
    return Intent(
        row["dead_letter_id"], Purpose(row["purpose"]), row["RowKey"], from_rfc3339(row["announced_at"])
    )
