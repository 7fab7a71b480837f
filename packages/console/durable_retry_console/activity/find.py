"""Reading the activity, this process's latest entries with it."""

from durable_retry.base.answers import Page
from durable_retry.storage.clients import run_in_pool
from durable_retry_console.activity.shapes import ActivityFilter, ActivityItem
from durable_retry_console.activity.store import WRITER, list_activity


async def find_activity(wanted: ActivityFilter, limit: int, cursor: str | None) -> Page[ActivityItem]:
    """Return entries that match, the newest first; see `list_activity`."""
    if cursor is None:
        await run_in_pool(WRITER.flush)
    return await list_activity(wanted, limit, cursor)
