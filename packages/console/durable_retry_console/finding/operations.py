"""Find operations: by key, id and shared names at once, by anything else in the index, the newest first.

A key has a few scopes (`rules.operations.operation`), and each gives one id: reading those costs the same
however many operations there are, and so does a correlation id, an order key or a debounce key, which have
rows of their own.

Everything else reads the index (`index.store`) back in time: all operations, or those that failed where only
they can match, or both where the words of an error count. What may match is read from the task hub and shown
if it does. One page reads a bounded number of each; its cursor continues where it stopped.

While the task hub does not answer, the index does: what it has of an operation is shown, with the reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from durable_retry.base.answers import UNREADABLE
from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.json_forms import from_microseconds, from_rfc3339, to_rfc3339
from durable_retry.base.names import FINISHED, OperationState
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import named_ids
from durable_retry.operations.status import find_status
from durable_retry.rules.operations.status import ListedOperation
from durable_retry.runtime.concurrency import map_bounded
from durable_retry_console.finding.question import (
    NAMES,
    BadCursorError,
    IndexCursor,
    Question,
    cursor_text,
    read_place,
)
from durable_retry_console.index.notes import write_noted
from durable_retry_console.index.store import NAMED, OperationEntry, OperationList, buckets, ids_of_name
from durable_retry_console.states import HELD_UP

MAX_READ: Final = 20_000
"""Entries of the index per page."""

# Rows of the index per page; the partition that is begun is read to its end.
_MAX_ROWS: Final = 1_000

# Documents per page.
_MAX_DOCUMENTS: Final = 400

_READS_AT_ONCE: Final = 16

# The most operations of a searched name that stand first on the first page.
_MOST_NAMED: Final = 20


type _Page = tuple[list[dict[str, Any]], str | None]
"""Status documents, the newest first, and the cursor of the next ones, None at the end."""


async def find_operations(hub: TaskHub, wanted: Question, *, limit: int, cursor: str | None) -> _Page:
    """Return the status documents of operations that match, the newest first, and the cursor behind them.

    Args:
        limit: Most operations of the page; a shorter one may have a cursor.

    Raises:
        BadCursorError: The cursor was not given out here.
        TaskHubUnavailableError: It did not answer, and the cursor is of the list of a shared name.
    """
    if cursor is None:
        await write_noted()
    place = None if cursor is None else read_place(cursor)
    begin = IndexCursor(before=wanted.created_before) if place is None else place
    try:
        return await _find_at_hub(hub, wanted, limit, begin, is_first=place is None)
    except TaskHubUnavailableError as error:
        if isinstance(begin, str):
            raise
        return await _Search(hub, wanted, limit, begin, away=str(error)).page()


async def _find_at_hub(
    hub: TaskHub, wanted: Question, limit: int, place: IndexCursor | str, *, is_first: bool
) -> _Page:
    name = next(filter(None, (getattr(wanted, name) for name in NAMED)), None)
    # A list that began in the index while the task hub was away goes on there.
    if wanted.key is None and name is not None and (is_first or isinstance(place, str)):
        return await _page_of_name(hub, wanted, name, limit, place if isinstance(place, str) else None)
    if isinstance(place, str):
        raise BadCursorError
    found: list[dict[str, Any]] = []
    if wanted.key is not None:
        documents = await _wanted_documents(hub, wanted, named_ids(wanted.key))
        rest = [document for document in documents if place.is_before(*_position_of(document))]
        found = sorted(rest, key=_position_of, reverse=True)[:limit]
        following = IndexCursor(*_position_of(found[-1])).text() if len(rest) > limit else None
        return found, following
    if wanted.words is not None and is_first:
        named, _ = await ids_of_name(wanted.words, limit=_MOST_NAMED, cursor=None)
        ids = [*named_ids(wanted.words), *named]
        found = (await _wanted_documents(hub, wanted, ids))[:limit]
        shown = tuple(one["operation_id"] for one in found)
        if wanted.words in shown:
            return found, None
        place = replace(place, shown=shown)
    return await _Search(hub, wanted, limit, place, found=found).page()


async def _page_of_name(hub: TaskHub, wanted: Question, name: str, limit: int, place: str | None) -> _Page:
    found: list[dict[str, Any]] = []
    read = 0
    while True:
        ids, place = await ids_of_name(name, limit=limit - len(found), cursor=place)
        found += await _wanted_documents(hub, wanted, ids)
        read += len(ids)
        if place is None or len(found) == limit or read >= _MAX_DOCUMENTS:
            return found, None if place is None else cursor_text(["name", place])


def _position_of(document: Mapping[str, Any]) -> tuple[datetime, str]:
    return from_rfc3339(document["created_at"]), document["operation_id"]


async def _wanted_documents(hub: TaskHub, wanted: Question, ids: Iterable[str]) -> list[dict[str, Any]]:
    documents = await _documents_of_ids(hub, dict.fromkeys(ids))
    return [
        document
        for document in documents
        if wanted.is_in_time(_position_of(document)[0]) and wanted.matches_operation(document)
    ]


async def _documents_of_ids(hub: TaskHub, ids: Iterable[str]) -> list[dict[str, Any]]:
    found = await map_bounded(partial(find_status, hub), ids, _READS_AT_ONCE)
    return [document for document in found if document is not None]


def _document_of_entry(entry: OperationEntry, away: str) -> dict[str, Any]:
    """Return what the index has of an operation, which may have gone on since."""
    return ListedOperation.taken_from(
        entry,
        status=entry.status or OperationState.PENDING,
        attempt_count=0,
        attempts=(),
        next_attempt_at=None,
        deadline_at=None,
        result=None,
        dead_letter=None,
        events=(),
        updated_at=max(from_microseconds(entry.noted_us), entry.created_at),
        unreadable=": ".join(part for part in (away, entry.error) if part),
    ).to_json()


def _document_in_place(document: dict[str, Any], entry: OperationEntry) -> dict[str, Any]:
    """Return a document; one that cannot be read has what the index knows of it, and stands in its place."""
    if UNREADABLE not in document:
        return document
    known = {name: getattr(entry, name) for name in NAMES if getattr(entry, name) is not None}
    return document | known | {"created_at": to_rfc3339(entry.created_at)}


# An operation in one of these is in the list of those that failed.
_FAILED_ONLY: Final = HELD_UP | FINISHED - {OperationState.SUCCEEDED}


@dataclass(slots=True)
class _Search:
    """One page of a search in the index, under way."""

    hub: TaskHub
    wanted: Question
    limit: int
    place: IndexCursor
    # Why the task hub is not asked, and entries of the index are shown; None where it is.
    away: str | None = None
    found: list[dict[str, Any]] = field(default_factory=list)  # at first what was found out of turn
    rows: int = 0  # rows of the index that were read
    entries: int = 0  # entries in them
    documents: int = 0  # documents that were read

    async def page(self) -> _Page:
        following = await self._fill()
        documents = sorted(self.found, key=_position_of, reverse=True)
        return documents, None if following is None else following.text()

    async def _fill(self) -> IndexCursor | None:
        """Fill the page; return where the next one begins, None at the end of all."""
        if self._is_page_full:
            return self.place
        after = self.wanted.created_after
        async for begin, rows, entries in buckets(self._kinds, self.place.first, self.wanted.words):
            self.rows += rows
            self.entries += len(entries)
            if await self._take_matching(entries):
                return self.place
            if after is not None and begin <= after:
                return None
            self.place = replace(self.place, before=begin, last_id="")
            if self._is_page_full or self.rows >= _MAX_ROWS or self.entries >= MAX_READ:
                return self.place
        return None

    @property
    def _is_page_full(self) -> bool:
        return len(self.found) == self.limit or self.documents >= _MAX_DOCUMENTS

    @property
    def _kinds(self) -> list[OperationList]:
        if self.wanted.status in _FAILED_ONLY:
            return [OperationList.FAILED]
        # Only the list of failures has errors, where words may stand, and states other than success.
        is_plain = self.wanted.words is None and self.wanted.status in (None, OperationState.SUCCEEDED)
        return [OperationList.ALL] if is_plain else [OperationList.ALL, OperationList.FAILED]

    async def _take_matching(self, entries: Iterable[OperationEntry]) -> bool:
        """Read the documents of those that may match until the page is full; return whether any are left."""
        rest = [
            entry
            for entry in entries
            if entry.operation_id not in self.place.shown
            and self.place.is_before(*entry.position)
            and self.wanted.is_in_time(entry.created_at)
            and self.wanted.may_match(entry)
        ]
        while rest and not self._is_page_full:
            missing = self.limit - len(self.found)
            taken, rest = rest[:missing], rest[missing:]
            if self.away is None:
                self.found += await self._matching_documents(taken)
                self.documents += len(taken)
            else:
                shown = [_document_of_entry(each, self.away) for each in taken]
                self.found += [each for each in shown if self.wanted.status in (None, each["status"])]
            self.place = replace(self.place, before=taken[-1].created_at, last_id=taken[-1].operation_id)
        return bool(rest)

    async def _matching_documents(self, entries: list[OperationEntry]) -> list[dict[str, Any]]:
        entries_by_id = {entry.operation_id: entry for entry in entries}
        read = await _documents_of_ids(self.hub, entries_by_id)
        documents = [_document_in_place(one, entries_by_id[one["operation_id"]]) for one in read]
        # A replay is accepted again: the index has its operation twice, and the later place counts.
        present = {_position_of(document): document for document in documents}
        found = (present.get(entry.position) for entry in entries)
        return [one for one in found if one is not None and self.wanted.matches_operation(one)]
