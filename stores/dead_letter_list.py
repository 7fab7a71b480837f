"""Pages of dead letters, newest first, by any filter.

The lists of several statuses share one order, so that a page without a status merges them and one cursor
serves all. A list row is checked against the dead letter itself: a row that a crash left behind, or one that
moves at this moment, is not shown twice.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Final

from engine.dead_letter import DeadLetterRecord, Status
from engine.dead_letter_filter import Filter
from stores import tables
from stores.dead_letter_keys import AFTER_ALL, TABLE, Entry, list_prefix, newest_first
from stores.dead_letters import find_dead_letters

_ROUNDS: Final = 5
"""Reads of the lists for one page at most: a filter that matches little answers early, with a cursor."""

_MANY_ROWS: Final = 999
"""Rows per read when the list holds more than is wanted; with the one that tells of others, one request."""


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Some dead letters; `cursor` leads to the next ones and is None at the end."""

    records: list[DeadLetterRecord]
    cursor: str | None


async def list_dead_letters(wanted: Filter, *, limit: int, cursor: str | None) -> DeadLetterPage:
    """Return wanted dead letters, the newest first.

    Args:
        wanted: The filter.
        limit: The most to return; less can come with a cursor.
        cursor: Of the page before; None to begin.
    """
    records: list[DeadLetterRecord] = []
    for _ in range(_ROUNDS):
        entries, cursor = await _entries(wanted, limit - len(records), cursor)
        found = await find_dead_letters(entry.id for entry in entries)
        records.extend(record for record in found if record is not None and _is_wanted(wanted, record))
        if cursor is None or len(records) == limit:
            break
    return DeadLetterPage(records, cursor)


async def count_dead_letters(wanted: Filter) -> int:
    """Count wanted dead letters; the cost is that of the shortest list that holds them."""
    pages = await asyncio.gather(*(_range(wanted, status) for status in _statuses(wanted)))
    ids = {
        entry.id for page in pages for entry in map(Entry.from_row, page.rows) if wanted.matches(entry.facets)
    }
    return len(ids)


async def _entries(wanted: Filter, limit: int, cursor: str | None) -> tuple[list[Entry], str | None]:
    """Read the lists once: at most `limit` wanted entries, and the cursor of what follows them."""
    rows = limit if wanted.is_exact else _MANY_ROWS
    statuses = _statuses(wanted)
    pages = await asyncio.gather(*(_range(wanted, status, limit=rows, cursor=cursor) for status in statuses))
    lists = (map(Entry.from_row, page.rows) for page in pages)
    # Beyond `rows` a list that was cut may lack what another one shows.
    seen = list(islice(merge(*lists, key=attrgetter("position")), rows))
    chosen = list(islice((entry for entry in seen if wanted.matches(entry.facets)), limit))
    if len(chosen) == limit:
        last = chosen[-1].position
        is_end = last == seen[-1].position and _is_all(pages, len(seen))
    else:
        last = seen[-1].position if seen else ""
        is_end = _is_all(pages, len(seen))
    return _once(chosen), None if is_end else last


def _is_all(pages: Iterable[tables.Page], seen: int) -> bool:
    """Tell whether the lists hold nothing beyond what was seen of them."""
    listed = list(pages)
    return all(page.cursor is None for page in listed) and seen == sum(len(page.rows) for page in listed)


def _once(entries: Iterable[Entry]) -> list[Entry]:
    """Leave one of each: while a dead letter moves it stands in two lists, next to itself."""
    return list({entry.id: entry for entry in entries}.values())


async def _range(
    wanted: Filter, status: Status, *, limit: int | None = None, cursor: str | None = None
) -> tables.Page:
    prefix = list_prefix(wanted.key)
    # The newest is first, so that the end of the time begins the range; `created_before` itself is too new.
    first = "" if wanted.created_before is None else newest_first(wanted.created_before) + AFTER_ALL
    last = AFTER_ALL if wanted.created_after is None else newest_first(wanted.created_after) + AFTER_ALL
    return await tables.rows_between(
        TABLE,
        status.value,
        after=prefix + max(first, "" if cursor is None else cursor + "!"),
        before=prefix + last,
        limit=limit,
    )


def _statuses(wanted: Filter) -> tuple[Status, ...]:
    return tuple(Status) if wanted.status is None else (wanted.status,)


def _is_wanted(wanted: Filter, record: DeadLetterRecord) -> bool:
    return wanted.status in (None, record.status)
