"""What became of each item of a bulk replay or another bulk action, in the table of the lists.

    PK <id of the action>   RK <newest first>-<place in its batch>

An activity writes the items of its batch in one transaction after it did them. Its keys come from its input,
so an activity that runs again replaces what it wrote before. `services.retention` removes the rows after the
history of the action.
"""

import json
from collections.abc import Iterable
from typing import Final

from durable_retry.engine.base.json_forms import age, from_rfc3339
from durable_retry.engine.dead_letters.bulk_replay import BulkItem
from durable_retry.stores import tables
from durable_retry.stores.workflows import LISTS_TABLE

_WITHOUT_INSTANT: Final = "1970-01-01T00:00:00Z"
"""For batches whose orchestration began in 0.1.0, which gives them no instant."""


async def keep_items(action_id: str, asked_at: str | None, items: Iterable[tuple[int, BulkItem]]) -> None:
    """Store what became of items. Idempotent.

    Args:
        action_id: Of the bulk replay or action.
        asked_at: RFC 3339, of the batch; None from an orchestration of 0.1.0.
        items: Each with its place in the batch, from 0; 100 at most.
    """
    batch = age(from_rfc3339(asked_at or _WITHOUT_INSTANT))
    rows = [
        {
            "PartitionKey": action_id,
            "RowKey": f"{batch}-{place:02d}",
            "at": asked_at or "",
            "item": json.dumps(item.shortened().to_json()),
        }
        for place, item in items
    ]
    if rows:
        await tables.transact(LISTS_TABLE, [("upsert", row) for row in rows])


async def list_items(
    action_id: str, *, limit: int, cursor: str | None
) -> tuple[list[tuple[str | None, BulkItem]], str | None]:
    """Return items with the instants of their batches, the newest first, and the cursor of the next ones.

    Args:
        action_id: Of the bulk replay or action.
        limit: The most items to return.
        cursor: Of the page before; None to begin.
    """
    page = await tables.rows_between(LISTS_TABLE, action_id, limit=limit, cursor=cursor)
    return [
        (row["at"] or None, BulkItem.from_json(json.loads(row["item"]))) for row in page.rows
    ], page.cursor
