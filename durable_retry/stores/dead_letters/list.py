"""Pages of dead letters, newest first, by any filter and by words.

The lists of all statuses share one order, so a page merges them under one cursor. Storage looks through a
list for what a filter names. Each row is checked against the dead letter itself: one that a crash left behind
or that is being moved is not shown twice.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Final

from durable_retry.engine.base.instants import newest_first
from durable_retry.engine.dead_letters.filters import EVERY, DeadLetterFilter, DeadLetterSearch
from durable_retry.engine.dead_letters.record import Facets, KeptDeadLetter, Status
from durable_retry.stores.dead_letters.index import AFTER_ALL, NEWEST_FIRST, TABLE, id_at
from durable_retry.stores.dead_letters.records import find_dead_letter, find_dead_letters
from durable_retry.stores.storage import tables

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
    wanted: DeadLetterFilter, *, limit: int, cursor: str | None, search: DeadLetterSearch = EVERY
) -> DeadLetterPage:
    """Return dead letters that match a filter, the newest first.

    A page that is shorter than the limit may have a cursor. Words that are the id of one give that one, at
    once.
    """
    if search.words is not None and (named := await find_dead_letter(search.words)) is not None:
        return DeadLetterPage([named] if _is_named(wanted, search, named) else [], None)
    records: list[KeptDeadLetter] = []
    unread: Collection[Status] = _statuses(wanted)
    for _ in range(_ROUNDS):
        entries, cursor, unread = await _read_lists(wanted, search, unread, limit - len(records), cursor)
        found = await find_dead_letters(entry.id for entry in entries)
        records.extend(
            record
            for record in found
            if record is not None and wanted.matches_record(record) and search.matches(record)
        )
        if cursor is None or len(records) == limit:
            break
    return DeadLetterPage(records, cursor)


async def count_dead_letters(wanted: DeadLetterFilter, *, one_page: bool = False) -> int:
    """Count dead letters that match a filter, 999 rows with each read.

    Without a status, one that moves between two lists at this moment may be counted twice. `one_page` counts
    among the newest 999 of each status only, which is one read each.
    """
    counts = await asyncio.gather(*(_count_in_list(wanted, each, one_page) for each in _statuses(wanted)))
    return sum(counts)


async def _count_in_list(wanted: DeadLetterFilter, status: Status, one_page: bool) -> int:  # noqa: FBT001 - private
    count, cursor = 0, None
    while True:
        found, following = await _read_range(wanted, status, limit=_MANY_ROWS, cursor=cursor)
        count += sum(wanted.may_match_names(one.row) for one in found)
        if following is None or one_page:
            return count
        cursor = found[-1].position


@dataclass(frozen=True, slots=True)
class _Listed:
    """One row of a list."""

    position: str  # in every list that begins with the newest; also the cursor that continues behind it
    row: tables.Row  # the properties that were asked for

    @property
    def id(self) -> str:
        """The id of the dead letter."""
        return id_at(self.position)


async def _read_lists(
    wanted: DeadLetterFilter,
    search: DeadLetterSearch,
    among: Collection[Status],
    limit: int,
    cursor: str | None,
) -> tuple[list[_Listed], str | None, Collection[Status]]:
    """Read some lists once: matching rows, the cursor behind them, and which lists go on."""
    is_any = search == EVERY
    rows = limit if is_any and not wanted.turn_names else _MANY_ROWS
    more = () if is_any else ("names", "reason")
    pages = await asyncio.gather(
        *(_read_range(wanted, each, limit=rows, cursor=cursor, more=more) for each in among)
    )
    lists = [found for found, _ in pages]
    # Behind the end of a list that was cut the order is not complete.
    complete = min((found[-1].position for found, following in pages if following is not None), default=None)
    seen = [
        one
        for one in merge(*lists, key=attrgetter("position"))
        if complete is None or one.position <= complete
    ]
    fitting = (
        one
        for one in seen
        if wanted.may_match_names(one.row) and (is_any or search.may_match(one.id, one.row))
    )
    chosen = list(islice(fitting, limit))
    # A full page continues behind its last entry, another one behind everything that was read.
    passed = chosen if len(chosen) == limit else seen
    last = passed[-1].position if passed else ""
    is_end = (not seen or last == seen[-1].position) and _is_all(pages, len(seen))
    unread = [
        each
        for each, (found, following) in zip(among, pages, strict=True)
        if following is not None or (found and found[-1].position > last)
    ]
    return _without_duplicates(chosen), None if is_end else last, unread


type _Range = tuple[list[_Listed], str | None]
"""Rows of a list, and whether there are more: then not None."""


def _is_all(pages: Iterable[_Range], seen: int) -> bool:
    """Return whether the lists have no entries behind those that were read."""
    listed = list(pages)
    return all(following is None for _, following in listed) and seen == sum(
        len(found) for found, _ in listed
    )


def _without_duplicates(chosen: Iterable[_Listed]) -> list[_Listed]:
    # A dead letter that is being moved is in two lists.
    return list({one.id: one for one in chosen}.values())


async def _read_range(
    wanted: DeadLetterFilter,
    status: Status,
    *,
    limit: int,
    cursor: str | None = None,
    more: Collection[str] = (),
) -> _Range:
    """Read rows of a list, of their properties only what is needed: reading a row costs by their number."""
    names = ("names",) if wanted.turn_names else ()
    # The newest is first, so `created_before` (exclusive) is the begin of the range.
    first = "" if wanted.created_before is None else newest_first(wanted.created_before) + AFTER_ALL
    last = AFTER_ALL if wanted.created_after is None else newest_first(wanted.created_after) + AFTER_ALL
    page = await tables.rows_between(
        TABLE,
        status,
        after=NEWEST_FIRST + max(first, "" if cursor is None else cursor + "!"),
        before=NEWEST_FIRST + last,
        limit=limit,
        only=sorted({"RowKey", *more, *names}),
        where=wanted.facets,
    )
    return [_Listed(row["RowKey"].removeprefix(NEWEST_FIRST), row) for row in page.rows], page.cursor


def _statuses(wanted: DeadLetterFilter) -> tuple[Status, ...]:
    return tuple(Status) if wanted.status is None else (wanted.status,)


def _is_named(wanted: DeadLetterFilter, search: DeadLetterSearch, record: KeptDeadLetter) -> bool:
    after, before = wanted.created_after, wanted.created_before
    is_in_time = (after is None or record.created_at >= after) and (
        before is None or record.created_at < before
    )
    facets_fit = wanted.matches(Facets.of(record)) and wanted.matches_record(record)
    return is_in_time and facets_fit and search.matches(record)
