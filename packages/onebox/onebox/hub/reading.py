"""What is read of the store, through connections that cannot write.

The dispatcher reads single rows and inboxes (`Reader`) and keeps the histories of instances that take turns
(`HistoryCache`); clients read instances and entities, one or pages of many that match a filter (`Listing`).
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import durabletask.internal.orchestrator_service_pb2 as pb

from onebox.hub.archive import unpack, unpacked_state
from onebox.hub.database import QUERIES, is_entity
from onebox.hub.events import unpacked
from onebox.hub.instances import head_from
from onebox.hub.model import (
    TERMINAL,
    Entity,
    Head,
    InvalidRequestError,
    Kind,
    Lane,
    Message,
    Status,
    Task,
    tags_from,
)

_OVERHEAD_BYTES = 600  # of one entry, beside its history
_NO_LIMIT = -1
_KINDS: Final = {kind.value: kind for kind in Kind}  # quicker than to call the enumeration
_LARGEST_PAGE: Final = 1_000  # as of Azure's tables, which do not look at the bytes of a page either
_SEPARATOR: Final = "|"
_LONGEST_INSTANT: Final = 18  # digits that SQLite's integers hold


@dataclass(slots=True)
class Live:
    """An instance with its history as stored: framed events, one chunk per turn."""

    head: Head
    chunks: list[bytes]
    size: int


class HistoryCache:
    """The instances used last, up to a number of bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._entries: OrderedDict[str, Live] = OrderedDict()
        self._bytes = 0

    def get(self, instance_id: str) -> Live | None:
        """Return an instance, now the one used last; None when it is not here."""
        live = self._entries.get(instance_id)
        if live is not None:
            self._entries.move_to_end(instance_id)
        return live

    def put(self, live: Live) -> None:
        """Keep an instance; those unused for longest give way."""
        self.drop(live.head.id)
        # The input is held twice: the head has it beside the history's first event.
        live.size = _OVERHEAD_BYTES + len(live.head.input or "") + sum(map(len, live.chunks))
        self._entries[live.head.id] = live
        self._bytes += live.size
        self._evict()

    def advance(self, live: Live, head: Head, chunk: bytes) -> None:
        """Note a committed turn of an instance."""
        live.head = head
        live.chunks.append(chunk)
        if self._entries.get(head.id) is live:
            live.size += len(chunk)
            self._bytes += len(chunk)
            self._evict()

    def clear(self) -> None:
        """Forget all instances."""
        self._entries.clear()
        self._bytes = 0

    def _evict(self) -> None:
        while self._bytes > self._limit_bytes:
            self._bytes -= self._entries.popitem(last=False)[1].size

    def drop(self, instance_id: str) -> None:
        """Forget an instance."""
        gone = self._entries.pop(instance_id, None)
        if gone is not None:
            self._bytes -= gone.size


class Reader:
    """Reads single rows and inboxes."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def rows(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run one named query."""
        return self._db.execute(QUERIES[name], parameters).fetchall()

    def each(self, name: str, *parameters: Any) -> Iterator[tuple[Any, ...]]:
        """Run one named query and read its rows one by one."""
        return iter(self._db.execute(QUERIES[name], parameters))

    def live(self, instance_id: str) -> Live | None:
        """Return an instance with its history; None when there is none."""
        found = self.rows("instance.head", instance_id)
        if not found:
            return None
        head = head_from(instance_id, found[0])
        rows = self.rows("history.read", instance_id) if head.turn else ()
        return Live(head, [unpacked(row[0]) for row in rows], 0)

    def inbox(self, instance_id: str, now_us: int) -> list[Message]:
        """Return what an instance may see, in order of arrival.

        All of it: the message that counts (a resume, a rewind) may stand behind any number of others.
        """
        return self._visible(instance_id, now_us, _NO_LIMIT)

    def has_ended(self, instance_id: str) -> bool:
        """Return whether an instance has ended, or is gone."""
        return not self.rows("instance.lives", instance_id)

    def entity(self, entity_id: str) -> Entity:
        """Return an entity; one without a row is one without a state."""
        found = self.rows("entity.get", entity_id)
        if not found:
            return Entity(entity_id)
        _, state, *rest = found[0]
        return Entity(entity_id, unpacked_state(state), *rest)

    def operations(self, entity: Entity, now_us: int, limit: int) -> list[Message]:
        """Return what an entity may see, in order of arrival.

        All of it while the entity is locked: the owner's call may stand behind any number of others.
        """
        return self._visible(entity.id, now_us, limit if entity.lock_owner is None else _NO_LIMIT)

    def _visible(self, target: str, now_us: int, limit: int) -> list[Message]:
        return [
            Message(seq, target, _KINDS[kind], due_us, events, execution_id)
            for seq, kind, due_us, events, execution_id in self.rows("message.visible", target, now_us, limit)
        ]

    def task(self, seq: int) -> Task | None:
        """Return an activity; None when its result is stored."""
        found = self.rows("activity.get", seq)
        if not found:
            return None
        instance_id, execution_id, task_id, name, input_, lane = found[0]
        return Task(seq, instance_id, execution_id, task_id, name, input_, Lane(lane))

    def timers(self, after_us: int, limit: int) -> list[tuple[int, str]]:
        """Return the next timers after an instant; more than `limit` of them means that there may be more."""
        return [(due_us, target) for due_us, target in self.rows("message.timers", after_us, limit)]

    def ready_targets(self, now_us: int) -> list[tuple[str, Lane]]:
        """Return every instance and entity with a visible message."""
        return [
            (target, Lane.NEW if is_new and not is_entity(target) else Lane.GOING)
            for target, is_new in self.rows("message.ready", now_us)
        ]

    def ready_tasks(self) -> list[tuple[int, Lane]]:
        """Return every activity without a stored result."""
        return [(seq, Lane(lane)) for seq, lane in self.rows("activity.ready")]

    def newest_us(self) -> int:
        """Return the instant of the newest commit that an instance shows; 0 when there is none."""
        return int(self.rows("instance.newest")[0][0])

    def last_seq(self) -> int:
        """Return the highest number in use."""
        return max(int(self.rows(name)[0][0]) for name in ("message.last_seq", "activity.last_seq"))

    def close(self) -> None:
        """Close the connection."""
        self._db.close()


@dataclass(frozen=True, slots=True)
class InstanceState:
    """An instance as its clients see it; instants in microseconds, payloads as JSON text."""

    id: str
    execution_id: str
    name: str
    version: str | None
    status: Status
    input: str | None
    output: str | None
    custom_status: str | None
    failure: bytes | None
    tags: dict[str, str]
    parent_id: str | None
    created_us: int
    updated_us: int
    scheduled_us: int | None
    completed_us: int | None

    @property
    def shown_output(self) -> str | None:
        """JSON text; of an instance that failed plain text, what went wrong, as on Azure Storage."""
        if self.failure is None or self.output is not None:
            return self.output
        failure = pb.TaskFailureDetails.FromString(self.failure)
        return f"{failure.errorType}: {failure.errorMessage}"


@dataclass(frozen=True, slots=True)
class EntityState:
    """An entity as its clients see it."""

    id: str
    state: str | None
    lock_owner: str | None
    modified_us: int
    backlog: int


@dataclass(frozen=True, slots=True)
class InstanceFilter:
    """The instances to list; None and empty do not filter. Instants: from inclusive, to exclusive."""

    statuses: frozenset[Status] = frozenset()
    created_from_us: int | None = None
    created_to_us: int | None = None
    id_prefix: str | None = None


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """The entities to list, as for instances; without `include_empty`, only those that have a state."""

    id_prefix: str | None = None
    modified_from_us: int | None = None
    modified_to_us: int | None = None
    include_empty: bool = False


@dataclass(frozen=True, slots=True)
class Page[T]:
    """Some of a list; `token` asks for what follows, None when nothing does."""

    items: list[T]
    token: str | None


class Listing:
    """Reads through a connection that sees only what is committed."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def instance(self, instance_id: str) -> InstanceState | None:
        """Return one instance; None when there is none."""
        row = self._db.execute(QUERIES["instance.get"], (instance_id,)).fetchone()
        return None if row is None else _state(row, with_payloads=True)

    def instances(
        self, wanted: InstanceFilter, limit: int | None, token: str | None, *, with_payloads: bool = True
    ) -> Page[InstanceState]:
        """Return a page of instances in order of creation.

        Args:
            wanted: Which.
            limit: None means as long as a page may be.
            token: The token of the page before; None to begin.
            with_payloads: Whether inputs and outputs are read; the custom status always is.
        """
        conditions = _Conditions()
        index = conditions.statuses(wanted.statuses)
        conditions.between("created_us", wanted.created_from_us, wanted.created_to_us, token)
        # Always in order of creation, never by the key: a prefix that most ids have (as with an app of one
        # orchestrator) would otherwise read and sort all of them for every page.
        conditions.starts_with("+id", wanted.id_prefix)
        columns = _INSTANCE_COLUMNS if with_payloads else _LIGHT_COLUMNS
        rows = conditions.select(self._db, columns, f"instances INDEXED BY {index}", "created_us, id")
        return _page(
            (_state(row, with_payloads=with_payloads) for row in rows),
            _page_size(limit),
            lambda last: f"{last.created_us}{_SEPARATOR}{last.id}",
        )

    def finished_ids(
        self,
        statuses: frozenset[Status],
        completed_from_us: int | None,
        completed_to_us: int | None,
        limit: int,
        token: str | None,
    ) -> Page[str]:
        """Return a page of ids of finished instances in order of completion."""
        conditions = _Conditions()
        conditions.add("completed_us IS NOT NULL")
        conditions.one_of("status", statuses)
        conditions.between("completed_us", completed_from_us, completed_to_us, token)
        found = conditions.select(self._db, "completed_us, id", "instances", "completed_us, id")
        page = _page(found, limit, lambda last: f"{last[0]}{_SEPARATOR}{last[1]}")
        return Page([row[1] for row in page.items], page.token)

    def history(self, instance_id: str) -> list[bytes]:
        """Return the framed events of an instance's present execution, one chunk per turn."""
        rows = self._db.execute(QUERIES["history.all"], (instance_id,))
        return [unpack(stored).history if whole else unpacked(stored) for _, stored, whole in rows]

    def entity(self, entity_id: str) -> EntityState | None:
        """Return one entity; None when it has neither a state nor a lock."""
        row = self._db.execute(QUERIES["entity.shown"], (entity_id,)).fetchone()
        return None if row is None else _entity_state(row)

    def entities(self, wanted: EntityFilter, limit: int | None, token: str | None) -> Page[EntityState]:
        """Return a page of entities in order of their ids."""
        conditions = _Conditions()
        if not wanted.include_empty:
            conditions.add("state IS NOT NULL")
        conditions.between("modified_us", wanted.modified_from_us, wanted.modified_to_us)
        conditions.starts_with("id", wanted.id_prefix)
        if token is not None:
            conditions.add("id > ?", token)
        rows = conditions.select(self._db, _ENTITY_COLUMNS, "entities", "id")
        return _page(map(_entity_state, rows), _page_size(limit), lambda last: last.id)


_INSTANCE_COLUMNS: Final = QUERIES["instance.get"].split("SELECT", 1)[1].rsplit("FROM", 1)[0].strip()
_LIGHT_COLUMNS: Final = _INSTANCE_COLUMNS.replace("input, output", "NULL, NULL")
_ENTITY_COLUMNS: Final = QUERIES["entity.shown"].split("SELECT", 1)[1].rsplit("FROM", 1)[0].strip()


_ENDED_BADLY: Final = TERMINAL - {Status.COMPLETED}


class _Conditions:
    """Puts a WHERE clause together; values always travel as parameters."""

    def __init__(self) -> None:
        self._clauses: list[str] = []
        self._values: list[Any] = []

    def add(self, clause: str, *values: Any) -> None:
        self._clauses.append(clause)
        self._values += values

    def one_of(self, column: str, values: frozenset[Status]) -> None:
        if values:
            marks = ", ".join("?" * len(values))
            self.add(f"{column} IN ({marks})", *sorted(map(int, values)))

    def statuses(self, wanted: frozenset[Status]) -> str:
        """Filter by status, and return the index that passes the fewest others (see schema.sql)."""
        self.one_of("status", wanted)
        if wanted and not wanted & TERMINAL:
            self.add("completed_us IS NULL")
            return "instances_unfinished"
        if wanted and wanted <= _ENDED_BADLY:
            # The index's own condition, word for word: SQLite takes no other as proof.
            self.add("status IN (3, 4, 5)")
            return "instances_ended_badly"
        return "instances_by_creation"

    def between(self, column: str, from_us: int | None, to_us: int | None, token: str | None = None) -> None:
        """Filter by an instant, behind the page that a token ends.

        The token takes the place of the beginning, unless that is later: SQLite seeks by one of them only and
        would pass all former pages again.
        """
        if token is not None:
            instant, _, last_id = token.partition(_SEPARATOR)
            if not instant.isdecimal() or len(instant) > _LONGEST_INSTANT:
                raise InvalidRequestError("the continuation token is not one of this list")
            self.add(f"({column}, id) > (?, ?)", int(instant), last_id)
            from_us = None if from_us is None or from_us <= int(instant) else from_us
        if from_us is not None:
            self.add(f"{column} >= ?", from_us)
        if to_us is not None:
            self.add(f"{column} < ?", to_us)

    def starts_with(self, column: str, prefix: str | None) -> None:
        if prefix:
            # A range, not LIKE: it uses the key's index, and no character in a prefix is special.
            self.add(f"{column} >= ? AND {column} < ?", prefix, prefix + "\U0010ffff")

    def select(
        self, db: sqlite3.Connection, columns: str, table: str, order: str
    ) -> Iterator[tuple[Any, ...]]:
        where = f" WHERE {' AND '.join(self._clauses)}" if self._clauses else ""
        statement = f"SELECT {columns} FROM {table}{where} ORDER BY {order}"  # noqa: S608 - our own words
        return iter(db.execute(statement, self._values))


def _page_size(limit: int | None) -> int:
    return min(limit, _LARGEST_PAGE) if limit is not None and limit > 0 else _LARGEST_PAGE


def _page[T](items: Iterator[T], limit: int, token_of: Any) -> Page[T]:
    """Take a page from a cursor; only if there is one more does it have a token."""
    taken: list[T] = []
    for item in items:
        if len(taken) == limit:
            return Page(taken, token_of(taken[-1]))
        taken.append(item)
    return Page(taken, None)


def _entity_state(row: tuple[Any, ...]) -> EntityState:
    entity_id, state, lock_owner, modified_us, backlog = row
    return EntityState(entity_id, unpacked_state(state), lock_owner, modified_us, backlog)


def _state(row: tuple[Any, ...], *, with_payloads: bool) -> InstanceState:
    *columns, packed = row
    fields = dict(zip(InstanceState.__slots__, columns, strict=True))
    if packed is not None:
        parts = unpack(packed)
        fields["custom_status"] = parts.custom_status
        if with_payloads:
            fields["input"], fields["output"] = parts.input, parts.output
    fields["status"] = Status(fields["status"])
    fields["tags"] = tags_from(fields["tags"])
    return InstanceState(**fields)
