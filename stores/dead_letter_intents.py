"""What somebody is about to change at a dead letter: written before, gone after. A crash leaves it here."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from engine.instants import from_rfc3339, to_rfc3339
from stores import clock, tables
from stores.dead_letter_keys import AFTER_ALL, TABLE

_PARTITION: Final = "intent"


class Purpose(StrEnum):
    """What is about to happen."""

    MOVE = "move"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class Intent:
    """One intent; several may stand for one dead letter.

    Attributes:
        dead_letter_id: Whose.
        purpose: What for.
        key: Of its row.
        announced_at: When it was written.
    """

    dead_letter_id: str
    purpose: Purpose
    key: str
    announced_at: datetime


async def announce(dead_letter_id: str, purpose: Purpose) -> Intent:
    """Write down that a dead letter is about to change."""
    intent = Intent(dead_letter_id, purpose, f"{dead_letter_id}|{uuid.uuid4()}", clock.now())
    row = {
        "PartitionKey": _PARTITION,
        "RowKey": intent.key,
        "dead_letter_id": dead_letter_id,
        "purpose": purpose.value,
        "announced_at": to_rfc3339(intent.announced_at),
    }
    await tables.merge(TABLE, row)
    return intent


async def withdraw(intent: Intent) -> None:
    """Remove an intent: everything that belongs to it is done."""
    await tables.delete(TABLE, _PARTITION, intent.key)


async def left_over(limit: int) -> list[Intent]:
    """Return intents that still stand, at most `limit`."""
    page = await tables.rows_between(TABLE, _PARTITION, limit=limit)
    return [_intent(row) for row in page.rows]


async def intents_of(dead_letter_id: str) -> list[Intent]:
    """Return the intents that stand for one dead letter."""
    begin, end = f"{dead_letter_id}|", f"{dead_letter_id}|{AFTER_ALL}"
    page = await tables.rows_between(TABLE, _PARTITION, after=begin, before=end)
    return [_intent(row) for row in page.rows]


def _intent(row: tables.Row) -> Intent:
    return Intent(
        row["dead_letter_id"],
        Purpose(row["purpose"]),
        row["RowKey"],
        from_rfc3339(row["announced_at"]),
    )
