"""What became of each item of a bulk action, in the table of the lists.

    PK <id of the action>   RK <newest first>-<place in its batch>

An activity writes the items of its batch in one transaction after it did them. Its keys come from its input,
so an activity that runs again replaces what it wrote before. `features.retention` removes the
rows after the history of the action.
"""

import json
from collections.abc import Iterable
from datetime import datetime

from durable_retry.base.answers import read_or
from durable_retry.base.json_forms import newest_first
from durable_retry.hub.instance_lists import TABLE
from durable_retry.storage import tables
from durable_retry_console.bulk.document import BulkItem, ItemOutcome


async def keep_items(action_id: str, items: Iterable[tuple[str, BulkItem]]) -> None:
    """Store what became of items, each under its key: 100 at most. Idempotent."""
    rows = [
        {"PartitionKey": action_id, "RowKey": key, "item": json.dumps(item.to_json())} for key, item in items
    ]
    if rows:
        await tables.transact(TABLE, [("upsert", row) for row in rows])


def key_of_item(batch_at: datetime, place: int) -> str:
    """Return the key of an item by when its batch was asked for, and its place there, from 0."""
    return f"{newest_first(batch_at)}-{place:02d}"


async def list_items(
    action_id: str, *, limit: int, cursor: str | None
) -> tuple[list[tuple[str, BulkItem]], str | None]:
    """Return items with their keys, the newest first, and the cursor of the next ones."""
    page = await tables.rows_between(TABLE, action_id, limit=limit, cursor=cursor)
    return [(str(row["RowKey"]), _item_of_row(row)) for row in page.rows], page.cursor


def _item_of_row(row: tables.Row) -> BulkItem:
    def stand_in(reason: str) -> BulkItem:
        detail = f"This row cannot be read: {reason}"
        return BulkItem(id=str(row["RowKey"]), outcome=ItemOutcome.FAILED, detail=detail, unreadable=reason)

    return read_or(lambda: BulkItem.read(json.loads(row["item"])), stand_in)
