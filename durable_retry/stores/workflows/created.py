"""Sagas and bulk replays by the time of their creation, which the task hub cannot list by.

    PK `saga` | `replay`   RK <newest first>-<instance id>

An entry is written before its instance starts, so there may be one too many, never one too few. One whose
instance is gone, because its history was purged, is removed by the listing that finds it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final

from durable_retry.engine.base.json_forms import from_rfc3339
from durable_retry.stores.storage import tables
from durable_retry.stores.workflows.batches import age

TABLE: Final = "Workflows"
SAGA: Final = "saga"
REPLAY: Final = "replay"

_STARTS_WITHIN: Final = timedelta(hours=1)
"""An entry without an instance that is younger may be that of a start under way."""


async def note_created(kind: str, instance_id: str, created_at: str) -> None:
    """List an instance. Idempotent.

    Args:
        kind: `saga` or `replay`.
        instance_id: Of its orchestration.
        created_at: RFC 3339; the same for the same instance.
    """
    keys = {"PartitionKey": kind, "RowKey": f"{age(created_at)}-{instance_id}"}
    await tables.merge(TABLE, keys | {"created_at": created_at})


async def list_created(
    kind: str,
    find: Callable[[str], Awaitable[dict[str, Any] | None]],
    *,
    limit: int,
    cursor: str | None,
    now: datetime,
) -> tuple[list[dict[str, Any]], str | None]:
    """Return documents, the newest first, and the cursor of the next ones (None at the end).

    Args:
        kind: `saga` or `replay`.
        find: Reads the document of an instance; None when there is none.
        limit: The most documents to return; less can come with a cursor.
        cursor: Of the page before; None to begin.
        now: Aware UTC instant.
    """
    page = await tables.rows_between(TABLE, kind, limit=limit, cursor=cursor)
    found = await asyncio.gather(*(find(row["RowKey"].partition("-")[2]) for row in page.rows))
    for row, document in zip(page.rows, found, strict=True):
        if document is None and from_rfc3339(row["created_at"]) < now - _STARTS_WITHIN:
            await tables.delete(TABLE, kind, row["RowKey"])
    return [document for document in found if document is not None], page.cursor
