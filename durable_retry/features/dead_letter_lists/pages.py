"""Pages of dead letters, newest first, by any filter and by words.

The lists of all statuses share one order, so a page merges them under one cursor. Storage looks through a
list for what a filter names. Each row is checked against the dead letter itself: one that a crash left behind
or that is being moved is not shown twice.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from durable_retry.base.answers import Page
from durable_retry.base.json_forms import newest_first
from durable_retry.dead_letters.actions import shown_letter
from durable_retry.dead_letters.index import AFTER_ALL, NEWEST_FIRST, TABLE, id_at
from durable_retry.dead_letters.records import find_dead_letter, find_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import EVERY, DeadLetterFilter, DeadLetterSearch
from durable_retry.rules.dead_letters.document import DeadLetterDocument
from durable_retry.rules.dead_letters.record import KeptDeadLetter, Status
from durable_retry.settings.configuration import find_dependency
from durable_retry.storage import lists, tables

_ROUNDS: Final = 5
"""Maximum reads per page. A filter that matches little returns a short page with a cursor."""

_MANY_ROWS: Final = 999
"""Rows per read when not every row fits; with the extra row for the next page it is one request."""


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """One page. `cursor` continues behind it; None after the last page."""

    records: list[KeptDeadLetter]
    cursor: str | None


async def list_dead_letters(
    filter_: DeadLetterFilter, *, limit: int, cursor: str | None, search: DeadLetterSearch = EVERY
) -> DeadLetterPage:
    """Return dead letters that match a filter, the newest first.

    A page that is shorter than the limit may have a cursor. If the words are the id of a dead letter, the
    page has only this one.
    """
    if search.words is not None and (named := await find_dead_letter(search.words)) is not None:
        return DeadLetterPage([named] if _is_named(filter_, search, named) else [], None)
    records: list[KeptDeadLetter] = []
    unread: Sequence[str] = _statuses(filter_)
    for _ in range(_ROUNDS):
        ids, cursor, unread = await _matching_ids(filter_, search, unread, limit - len(records), cursor)
        records += (
            record
            for record in await find_dead_letters(ids)
            if record is not None and filter_.matches_record(record) and search.matches(record)
        )
        if cursor is None or len(records) == limit:
            break
    return DeadLetterPage(records, cursor)


async def list_letters(
    filter_: DeadLetterFilter,
    *,
    limit: int,
    cursor: str | None = None,
    search: DeadLetterSearch = EVERY,
) -> Page[DeadLetterDocument]:
    """Return dead letters that match, the newest first."""
    page = await list_dead_letters(filter_, limit=limit, cursor=cursor, search=search)
    return Page[DeadLetterDocument](items=tuple(map(shown_letter, page.records)), next_cursor=page.cursor)


async def count_dead_letters(filter_: DeadLetterFilter, *, one_page: bool = False) -> int:
    """Count dead letters that match a filter, 999 rows with each read.

    Without a status, one that moves between two lists at this moment may be counted twice. `one_page` counts
    unread the newest 999 of each status only, which is one read each.
    """
    counts = await asyncio.gather(
        *(_count_in_list(filter_, status, one_page) for status in _statuses(filter_))
    )
    return sum(counts)


async def _count_in_list(filter_: DeadLetterFilter, status: Status, one_page: bool) -> int:  # noqa: FBT001 - private
    count, cursor = 0, None
    while True:
        page = await tables.rows_between(TABLE, status, limit=_MANY_ROWS, **_range_of(filter_, cursor))
        count += sum(map(filter_.may_match_names, page.rows))
        if page.cursor is None or one_page:
            return count
        cursor = page.cursor.removeprefix(NEWEST_FIRST)


async def _matching_ids(
    filter_: DeadLetterFilter, search: DeadLetterSearch, unread: Sequence[str], limit: int, cursor: str | None
) -> tuple[list[str], str | None, Sequence[str]]:
    """Read some lists once.

    Return ids of matching rows, the cursor behind them, which is a position, and which lists go on.
    """
    is_any = search == EVERY
    rows = limit if is_any and not filter_.columns else _MANY_ROWS
    columns = () if is_any else ("names", "reason")
    which = _range_of(filter_, cursor, columns)
    page = await lists.merged_rows(TABLE, unread, limit=rows, is_cut=False, **which)
    by_position = {row["RowKey"].removeprefix(NEWEST_FIRST): row for row in page.rows}
    # By their positions: a dead letter that is being moved is in two lists.
    fitting = (
        position
        for position, row in by_position.items()
        if filter_.may_match_names(row) and (is_any or search.may_match(id_at(position), row))
    )
    chosen = list(islice(fitting, limit))
    ids = [id_at(position) for position in chosen]
    # A full page continues behind its last entry, another one behind everything that was read.
    if len(chosen) == limit and chosen[-1] != next(reversed(by_position)):
        return ids, chosen[-1], unread
    return ids, None if page.cursor is None else page.cursor.removeprefix(NEWEST_FIRST), page.unread


def _range_of(filter_: DeadLetterFilter, cursor: str | None, columns: Iterable[str] = ()) -> dict[str, Any]:
    """Return the range of the lists to read, and the columns: a read costs by the properties it returns."""
    # The newest is first, so `created_before` (exclusive) is the begin of the range.
    first = "" if filter_.created_before is None else newest_first(filter_.created_before) + AFTER_ALL
    last = AFTER_ALL if filter_.created_after is None else newest_first(filter_.created_after) + AFTER_ALL
    return {
        "after": NEWEST_FIRST + max(first, "" if cursor is None else cursor + "!"),
        "before": NEWEST_FIRST + last,
        "only": sorted({"RowKey", *columns, *filter_.columns}),
        "where": _facets(filter_),
    }


def _facets(filter_: DeadLetterFilter) -> dict[str, tuple[str, ...]]:
    return filter_.facets(None if filter_.dependency is None else find_dependency(filter_.dependency))


def _statuses(filter_: DeadLetterFilter) -> tuple[Status, ...]:
    return tuple(Status) if filter_.status is None else (filter_.status,)


def _is_named(filter_: DeadLetterFilter, search: DeadLetterSearch, record: KeptDeadLetter) -> bool:
    after, before = filter_.created_after, filter_.created_before
    is_in_time = (after is None or record.created_at >= after) and (
        before is None or record.created_at < before
    )
    facets_fit = all(record.facets[name] in values for name, values in _facets(filter_).items())
    return is_in_time and facets_fit and filter_.matches_record(record) and search.matches(record)
