"""What became of each item of a bulk replay or another bulk action, in the table of the lists.

    PK <id of the action>   RK <newest first>-<place in its batch>

An activity writes the items of its batch in one transaction after it did them. Its keys come from its input,
so an activity that runs again replaces what it wrote before. `services.upkeep.removal` removes the
rows after the history of the action.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from durable_retry.engine.base.instants import age, from_rfc3339
from durable_retry.engine.base.unreadable import read_or
from durable_retry.stores.storage import tables
from durable_retry.stores.workflows import LISTS_TABLE
from durable_retry_console.bulk.shapes import BulkItem, ItemEnd, ItemOutcome


async def keep_items(action_id: str, asked_at: str, items: Iterable[tuple[int, BulkItem]]) -> None:
    """Store what became of items. Idempotent.

    Args:
        asked_at: RFC 3339, of the batch.
        items: Each with its place in the batch, from 0; 100 at most.
    """
    batch = age(from_rfc3339(asked_at))
    rows = [
        {
            "PartitionKey": action_id,
            "RowKey": f"{batch}-{place:02d}",
            "at": asked_at,
            "item": json.dumps(item.shortened().to_json()),
        }
        for place, item in items
    ]
    if rows:
        await tables.transact(LISTS_TABLE, [("upsert", row) for row in rows])


@dataclass(frozen=True, slots=True)
class KeptItem:
    """An item as it is stored.

    Attributes:
        at: When its batch was asked for; None where that cannot be read.
        end: How that ended; None while nobody has seen that it did.
    """

    row_key: str
    at: datetime | None
    item: BulkItem
    end: ItemEnd | None = None


async def keep_ends(action_id: str, ends: Iterable[tuple[KeptItem, ItemEnd]]) -> None:
    """Store how items ended: 100 at most."""
    rows = [
        {"PartitionKey": action_id, "RowKey": kept.row_key, "end": json.dumps(end.to_json())}
        for kept, end in ends
    ]
    if rows:
        await tables.transact(LISTS_TABLE, [("upsert", row) for row in rows])


async def list_items(action_id: str, *, limit: int, cursor: str | None) -> tuple[list[KeptItem], str | None]:
    """Return items, the newest first, and the cursor of the next ones."""
    page = await tables.rows_between(LISTS_TABLE, action_id, limit=limit, cursor=cursor)
    return [_item_of_row(row) for row in page.rows], page.cursor


def _item_of_row(row: tables.Row) -> KeptItem:
    def stand_in(reason: str) -> BulkItem:
        detail = f"This row cannot be read: {reason}"
        return BulkItem(id=str(row["RowKey"]), outcome=ItemOutcome.FAILED, detail=detail, unreadable=reason)

    at = read_or(lambda: from_rfc3339(row["at"]), lambda _: None)
    item = read_or(lambda: BulkItem.from_json_text(row["item"]), stand_in)
    # An end that cannot be read is looked up anew.
    end = read_or(lambda: ItemEnd.from_json_text(row["end"]) if "end" in row else None, lambda _: None)
    return KeptItem(str(row["RowKey"]), at, item, end)
