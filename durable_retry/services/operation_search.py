"""Find operations: by key and id at once, by anything else by looking through the task hub.

A key has a few scopes (`engine.operations.operation`), and each gives one id: reading those costs the same
however many operations there are.

For anything else the task hub has no index. It filters by status and time of creation, and backends return
what they find in different orders. So a search goes back in time, window by window: it reads the previews of
a window, sorts them, and reads the documents of those that may match. A window that holds too many is made
shorter, and the next one is longer when it held few. One page reads a bounded number; its cursor continues
where it stopped.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from durable_retry import clock
from durable_retry.engine.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import OPERATIONS_QUEUE, QUEUE_SOURCE, OperationState
from durable_retry.engine.base.text import mentions
from durable_retry.engine.operations.operation import (
    FIELDS_SCOPE,
    event_scope,
    explicit_scope,
    operation_id_for,
    source_scope,
)
from durable_retry.engine.operations.status import last_error
from durable_retry.settings.intake import TIMER, intake_settings
from durable_retry.stores.operations import OperationPreview, find_status, runtimes_of, scan_operations

MAX_READ: Final = 10_000
"""Previews per page."""

_MAX_DOCUMENTS: Final = 400
"""Documents per page; before its first turn an operation has no preview, so each is read."""

_MAX_WINDOWS: Final = 24
_READS_AT_ONCE: Final = 16

_FIRST_ROOM: Final = 400
"""Most operations of the first window; each further window of a page may hold twice as many."""

_FIRST_SPAN: Final = timedelta(hours=1)
_SHORTEST_SPAN: Final = timedelta(milliseconds=1)
_LONGEST_SPAN: Final = timedelta(days=3_650)
_SHORTER: Final = 8

_KAFKA: Final = "kafka"
_WITHOUT_PLACE: Final = (TIMER, "event_grid")
_OWN_SOURCES: Final = ("batch", "saga", "watch")
"""Sources of our own, see `services.workflows` and `services.alerts`: their scopes have no place at all."""


class BadCursorError(ValueError):
    """An invalid cursor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFilter:
    """Conditions on operations; None means any.

    Attributes:
        status: Its state.
        dependency: Name of the dependency.
        handler: Name of the handler.
        source: Where it came from: `http`, `queue`, ...
        key: The whole key.
        correlation_id: The whole correlation id.
        words: Each must stand in the key, the correlation id, the operation id or the last error.
        created_after: Created at this instant or later.
        created_before: Created before this instant.
    """

    status: OperationState | None = None
    dependency: str | None = None
    handler: str | None = None
    source: str | None = None
    key: str | None = None
    correlation_id: str | None = None
    words: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def may_match(self, preview: OperationPreview) -> bool:
        """Return whether an operation may match, as far as its preview shows."""
        known = ((self.status, preview.status), (self.dependency, preview.dependency))
        if any(None not in pair and pair[0] != pair[1] for pair in known):
            return False
        return not preview.is_whole or self._fits(
            {name: getattr(preview, name) for name in (*_EXACT, "operation_id")}, preview.last_error
        )

    def matches(self, document: Mapping[str, Any]) -> bool:
        """Return whether the operation of a status document matches, whenever it was created."""
        state = OperationState(document["status"])
        return self.status in (None, state) and self._fits(document, last_error(document))

    def is_in_time(self, created_at: datetime) -> bool:
        """Return whether an operation that was created at an instant can match."""
        is_late = self.created_after is None or created_at >= self.created_after
        return is_late and (self.created_before is None or created_at < self.created_before)

    def _fits(self, shown: Mapping[str, Any], error: str) -> bool:
        exact = all(getattr(self, name) in (None, shown.get(name)) for name in _EXACT)
        return exact and (self.words is None or mentions(self.words, *map(shown.get, _SEARCHED), error))


_EXACT: Final = ("dependency", "handler", "source", "key", "correlation_id")
_SEARCHED: Final = ("operation_id", "key", "correlation_id")


@dataclass(frozen=True, slots=True)
class OperationPage:
    """A page of status documents, the newest first; `cursor` continues behind it, None at the end."""

    documents: list[dict[str, Any]]
    cursor: str | None


async def find_operations(
    hub: str, wanted: OperationFilter, *, tenant: str, limit: int, cursor: str | None
) -> OperationPage:
    """Return the operations that match, the newest first.

    Args:
        hub: Configuration of the durable client.
        wanted: The filter.
        tenant: Of the caller, whose keys are looked up at once.
        limit: Most operations of the page; a shorter one may have a cursor.
        cursor: Of the page before; None for the first.

    Raises:
        BadCursorError: The cursor was not given out here.
        TaskHubUnavailableError: The task hub did not answer.
    """
    place = _Place(before=wanted.created_before) if cursor is None else _Place.read(cursor)
    if wanted.key is not None:
        named = await _documents(hub, _named_ids(wanted.key, tenant))
        return _one_page([one for one in named if _is_wanted(wanted, one)], place, limit)
    named = []
    if wanted.words is not None and cursor is None:
        named = await _documents(hub, _named_ids(wanted.words, tenant))
        named = [one for one in named if _is_wanted(wanted, one)][:limit]
        if any(one["operation_id"] == wanted.words for one in named):
            return OperationPage(named, None)
        place = replace(place, shown=tuple(one["operation_id"] for one in named))
    search = _Search(hub, wanted, limit - len(named), place)
    following = await search.run()
    found = [*named, *search.found]
    found.sort(key=_created_at, reverse=True)
    return OperationPage(found, None if following is None else following.text())


def _named_ids(name: str, tenant: str) -> list[str]:
    """Return the ids that an operation of this key can have, and the name itself, which may be an id."""
    places = dict(intake_settings().places)
    if _KAFKA in places:  # The scope of a message is its topic alone.
        places[_KAFKA] = places[_KAFKA].rpartition("/")[2]
    places |= {QUEUE_SOURCE: OPERATIONS_QUEUE, **dict.fromkeys(_WITHOUT_PLACE, "")}
    scopes = [scope_of(who) for scope_of in (explicit_scope, event_scope) for who in (tenant, "")]
    scopes += [FIELDS_SCOPE, *(f"source:{source}" for source in _OWN_SOURCES)]
    scopes += [source_scope(source, place) for source, place in places.items()]
    return [name, *(operation_id_for(scope, name) for scope in dict.fromkeys(scopes))]


def _is_wanted(wanted: OperationFilter, document: Mapping[str, Any]) -> bool:
    return wanted.is_in_time(_created_at(document)) and wanted.matches(document)


def _created_at(document: Mapping[str, Any]) -> datetime:
    return from_rfc3339(document["created_at"])


def _one_page(documents: Iterable[dict[str, Any]], place: "_Place", limit: int) -> OperationPage:
    """Return a page of documents that were all read."""
    placed = sorted(
        ((_created_at(one), one["operation_id"], one) for one in documents),
        key=lambda entry: entry[:2],
        reverse=True,
    )
    rest = [entry for entry in placed if place.is_before(*entry[:2])]
    last = rest[limit - 1][:2] if len(rest) > limit else None
    return OperationPage([entry[2] for entry in rest[:limit]], None if last is None else _Place(*last).text())


async def _documents(hub: str, ids: Iterable[str]) -> list[dict[str, Any]]:
    """Return the documents of those that exist, in the order of the ids."""
    slots = asyncio.Semaphore(_READS_AT_ONCE)

    async def read(operation_id: str) -> dict[str, Any] | None:
        async with slots:
            return await find_status(hub, operation_id)

    found = await asyncio.gather(*map(read, ids))
    return [document for document in found if document is not None]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a search continues: with what was created before an instant.

    Attributes:
        before: Exclusive, but for ids that sort before `last_id`; None for the newest.
        last_id: The last operation that was looked at; "" when all of the instant remain.
        span: Length of the next window; None for all that is left.
        shown: Ids that an earlier page showed out of turn.
    """

    before: datetime | None = None
    last_id: str = ""
    span: timedelta | None = None
    shown: tuple[str, ...] = ()

    @classmethod
    def read(cls, cursor: str) -> Self:
        """Return the place of a cursor.

        Raises:
            BadCursorError: It was not given out here.
        """
        try:
            before, last_id, span_seconds, shown = json.loads(
                base64.urlsafe_b64decode(cursor.encode("ascii"))
            )
            span = None if span_seconds is None else _span(timedelta(seconds=span_seconds))
            return cls(
                before=None if before is None else from_rfc3339(before),
                last_id="" + last_id,
                span=span,
                shown=tuple("" + one for one in shown),
            )
        except (binascii.Error, UnicodeError, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise BadCursorError("this cursor was not given out here") from error

    def text(self) -> str:
        """Return the cursor."""
        before = None if self.before is None else to_rfc3339(self.before)
        span_seconds = None if self.span is None else self.span.total_seconds()
        parts = [before, self.last_id, span_seconds, self.shown]
        return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()

    def is_before(self, created_at: datetime, operation_id: str) -> bool:
        """Return whether an operation has not been looked at yet."""
        return self.before is None or (created_at, operation_id) < (self.before, self.last_id)


def _span(span: timedelta) -> timedelta:
    if not _SHORTEST_SPAN <= span <= 2 * _LONGEST_SPAN:
        raise ValueError(span)
    return span


@dataclass(slots=True)
class _Search:
    """One page of a search, under way.

    Attributes:
        hub: Configuration of the durable client.
        wanted: The filter.
        limit: Most documents to find.
        place: Where the next window ends.
        found: The documents so far, the newest first.
        read: Previews that were read.
        documents: Documents that were read.
        room: The most that the next window may hold.
    """

    hub: str
    wanted: OperationFilter
    limit: int
    place: _Place
    found: list[dict[str, Any]] = field(default_factory=list)
    read: int = 0
    documents: int = 0
    room: int = _FIRST_ROOM

    async def run(self) -> _Place | None:
        """Fill the page; return where the next one begins, None at the end of all."""
        if self.limit == 0:
            return self.place
        for _ in range(_MAX_WINDOWS):
            begin = self._begin()
            window = await self._window(begin)
            if window is None:
                self._shorten()
            else:
                left = await self._take(window)
                is_last = begin is None or begin == self.wanted.created_after
                if left or (self._is_full and not is_last):
                    return self.place
                if is_last:
                    return None
                self._go_back(begin, len(window))
            if self.read >= MAX_READ:
                break
        return self.place

    @property
    def _is_full(self) -> bool:
        return len(self.found) == self.limit or self.documents >= _MAX_DOCUMENTS

    def _begin(self) -> datetime | None:
        """Return the beginning of the next window, inclusive; None for the beginning of all."""
        after, span = self.wanted.created_after, self.place.span
        if span is None or span > _LONGEST_SPAN:
            return after
        begin = (self.place.before or clock.now()) - span
        return begin if after is None else max(begin, after)

    async def _window(self, begin: datetime | None) -> list[OperationPreview] | None:
        """Return the operations of the next window, the newest first; None when it holds too many."""
        # A backend may leave out what was created at the bound itself, and others of that instant are wanted.
        before = self.place.before
        until = before + timedelta(microseconds=1) if before is not None and self.place.last_id else before
        is_shortest = self.place.span is not None and self.place.span <= _SHORTEST_SPAN
        window = []
        async for one in scan_operations(
            self.hub,
            runtime_statuses=runtimes_of(self.wanted.status),
            created_after=begin,
            created_before=until,
        ):
            self.read += 1
            if self.place.is_before(one.created_at, one.operation_id) and one.created_at >= (begin or _EVER):
                window.append(one)
            if len(window) > self.room and not is_shortest:
                return None
        return sorted(window, key=_position, reverse=True)

    async def _take(self, window: list[OperationPreview]) -> bool:
        """Read the documents of those that may match until the page is full; return whether any are left."""
        shown = self.place.shown
        rest = [one for one in window if one.operation_id not in shown and self.wanted.may_match(one)]
        while rest and not self._is_full:
            missing = self.limit - len(self.found)
            taken, rest = rest[:missing], rest[missing:]
            documents = await _documents(self.hub, (one.operation_id for one in taken))
            # One that has changed since its preview was read may not match any more.
            self.found += filter(self.wanted.matches, documents)
            self.documents += len(taken)
            self.place = replace(self.place, before=taken[-1].created_at, last_id=taken[-1].operation_id)
        return bool(rest)

    def _shorten(self) -> None:
        span = self.place.span
        shorter = _FIRST_SPAN if span is None or span > _LONGEST_SPAN else span / _SHORTER
        self.place = replace(self.place, span=max(shorter, _SHORTEST_SPAN))

    def _go_back(self, begin: datetime | None, held: int) -> None:
        """Continue with the window before; it is longer when this one held few."""
        span = self.place.span
        if span is not None:
            span = min(2 * _LONGEST_SPAN, span * (_SHORTER if held * _SHORTER < self.room else 2))
        self.place = replace(self.place, before=begin, last_id="", span=span)
        self.room = min(2 * self.room, MAX_READ // 2)


_EVER: Final = datetime.min.replace(tzinfo=UTC)


def _position(preview: OperationPreview) -> tuple[datetime, str]:
    return preview.created_at, preview.operation_id
