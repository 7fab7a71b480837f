"""What the index says of the health: whether what is accepted begins, and whether storage takes notes."""

import asyncio
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from durable_retry.base.names import OperationState
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.status import find_status
from durable_retry.runtime import clock
from durable_retry.upkeep.health import HealthPart, seen_lately
from durable_retry_console.alerts.settings import alert_settings
from durable_retry_console.index import notes
from durable_retry_console.index.store import OperationEntry, OperationList, buckets

LOOKED_AT: Final = 5
"""The newest operations that are old enough: one that hangs by itself says little, all of them say enough."""

# Operations accepted earlier say nothing of today.
_OLDEST: Final = timedelta(days=1)


async def seconds_without_a_start(hub: TaskHub, now: datetime, patience_seconds: float) -> float:
    """Return for how long accepted operations have not begun; 0.0 while they begin, and without patience.

    It looks at the newest operations that are older. One that has made an attempt, waits for its circuit, a
    limit or a retry, or has ended, has begun. The cost is a request for the index, and one for each operation
    that the index does not show as begun.
    """
    if patience_seconds <= 0:
        return 0.0
    before, newest = now - timedelta(seconds=patience_seconds), list[OperationEntry]()
    after = before - _OLDEST
    async for begin, _, entries in buckets([OperationList.ALL], before):
        newest.extend(entry for entry in entries if after < entry.created_at <= before)
        if len(newest) >= LOOKED_AT or begin <= after:
            break
    newest = newest[:LOOKED_AT]
    if not newest or not all(await asyncio.gather(*(_is_pending(hub, entry) for entry in newest))):
        return 0.0
    return (now - min(entry.created_at for entry in newest)).total_seconds()


async def _is_pending(hub: TaskHub, entry: OperationEntry) -> bool:
    if entry.status is not None and entry.status is not OperationState.PENDING:
        return False
    document = await find_status(hub, entry.operation_id)
    return (
        document is not None
        and document["status"] == OperationState.PENDING
        and not document["attempts"]
        and not document.get("waits")
    )


async def starting_part(hub: TaskHub) -> HealthPart:
    """Look whether accepted operations begin."""
    patience = alert_settings().alert_not_starting_seconds
    seconds = await seen_lately(hub, partial(seconds_without_a_start, hub, clock.now(), patience), 0.0)
    if seconds <= patience:
        return HealthPart(healthy=True)
    detail = f"accepted operations have not begun for {seconds:.0f} s; `retryctl doctor` names the part"
    return HealthPart(healthy=False, detail=detail)


async def index_part(_: TaskHub) -> HealthPart:
    """Look whether storage takes what this process notes."""
    waiting = notes.unwritten()
    if waiting is None:
        return HealthPart(healthy=True)
    entries, since = waiting
    seconds = (clock.now() - since).total_seconds()
    detail = (
        f"storage has not taken the index of operations for {seconds:.0f} s; {entries} entries wait "
        "in this process, and are lost if it is killed"
    )
    return HealthPart(healthy=False, detail=detail)
