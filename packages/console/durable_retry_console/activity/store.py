"""The activity in the table `RetryActivity`, written in the background within a second.

    PK `entry`   RK <newest first>-<name of its own>   one entry
    PK `known`   RK `code` | `settings`                what ran last (`activity.changes`)

What a process notes less than a second before it is killed is lost; nothing waits for the activity.
"""

import json
import uuid
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Final, override

from durable_retry.base.answers import Page, read_or
from durable_retry.base.errors import ContendedError
from durable_retry.base.json_forms import newest_first
from durable_retry.storage import contents, tables
from durable_retry_console.activity.shapes import ActivityFilter, ActivityItem
from durable_retry_console.background import BackgroundWriter

TABLE: Final = "RetryActivity"

_ENTRY: Final = "entry"
_KNOWN: Final = "known"
# A person who acts sees it in the list a moment later.
_PAUSE_SECONDS: Final = 0.2
# Entries that wait for storage; the oldest go first.
_MOST_HELD: Final = 5_000
# Rows that one page looks at.
_MAX_ROWS: Final = 2_000
_ROWS_AT_ONCE: Final = 500
_REMOVED_AT_ONCE: Final = 1_000


class ActivityWriter(BackgroundWriter[str, tables.Row]):
    def __init__(self) -> None:
        super().__init__("activity", _PAUSE_SECONDS, most_held=_MOST_HELD)

    def note(self, item: ActivityItem, name: str | None = None) -> None:
        """Have an entry written; returns at once, from any thread.

        Args:
            name: With the instant it names the entry, which replaces an earlier one; None for one of its own.
        """
        # Made once: an entry that is written again is the same row.
        key = f"{newest_first(item.at)}-{name or uuid.uuid4().hex[:8]}"
        content = contents.packed("item", item.model_dump_json())
        self.hold(key, {"PartitionKey": _ENTRY, "RowKey": key, **content})

    @override
    def _write(self, held: Mapping[str, tables.Row]) -> None:
        self.replace(TABLE, held.values())


WRITER: Final = ActivityWriter()
"""The writer of this process."""


async def list_activity(wanted: ActivityFilter, limit: int, cursor: str | None) -> Page[ActivityItem]:
    """Return entries that match, the newest first.

    A page looks at a bounded number of rows, so it may be short, or empty, and have a cursor.
    """
    found: list[ActivityItem] = []
    rows_between = partial(
        tables.rows_between,
        TABLE,
        _ENTRY,
        # Rows of one instant have names behind it: `.` sorts behind `-`.
        after="" if wanted.before is None else f"{newest_first(wanted.before)}.",
        before=None if wanted.after is None else f"{newest_first(wanted.after)}.",
    )
    for _ in range(0, _MAX_ROWS, _ROWS_AT_ONCE):
        page = await rows_between(limit=_ROWS_AT_ONCE, cursor=cursor)
        for row in page.rows:
            cursor = str(row["RowKey"])
            found.extend(filter(wanted.matches, contents.readable(TABLE, [row], _item_of_row)))
            if len(found) == limit:
                return Page[ActivityItem](items=tuple(found), next_cursor=cursor)
        if page.cursor is None:
            return Page[ActivityItem](items=tuple(found))
    return Page[ActivityItem](items=tuple(found), next_cursor=cursor)


def _item_of_row(row: tables.Row) -> ActivityItem:
    return ActivityItem.model_validate_json(contents.unpacked("item", row))


async def remove_activity_before(instant: datetime) -> int:
    """Delete entries from before an instant, a bounded number; return how many."""
    page = await tables.rows_between(
        TABLE, _ENTRY, after=f"{newest_first(instant)}.", limit=_REMOVED_AT_ONCE, only=tables.KEYS
    )
    await tables.delete_rows(TABLE, page.rows)
    return len(page.rows)


async def replace_known(name: str, digests: Mapping[str, str], *, is_part: bool = False) -> list[str]:
    """Remember what runs now; return the names that differ from what ran last, none the first time.

    Where two instances replace it at once, one of them returns the names.

    Args:
        is_part: Whether a name may be missing that another process has; it is kept, and is no difference.
    """
    before: Mapping[str, str] | None = None

    def rule(known: Mapping[str, str] | None) -> Mapping[str, str]:
        nonlocal before
        before = known
        return {**(known or {}), **digests} if is_part else digests

    keys = {"PartitionKey": _KNOWN, "RowKey": name}
    try:
        await tables.change_row(
            TABLE,
            keys,
            rule,
            read=_digests_of_row,
            write=lambda digests: contents.packed("digests", json.dumps(digests)),
        )
    except ContendedError:
        return []
    if not before:
        return []
    names = before.keys() & digests.keys() if is_part else before.keys() | digests.keys()
    return sorted(each for each in names if before.get(each) != digests.get(each))


def _digests_of_row(row: tables.Row) -> Mapping[str, str]:
    # What cannot be read is replaced, as at the first time.
    return read_or(lambda: dict(json.loads(contents.unpacked("digests", row))), lambda _: {})
