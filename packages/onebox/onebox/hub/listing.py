"""What clients read of the store: an instance or an entity, or pages of many that match a filter."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import durabletask.internal.orchestrator_service_pb2 as pb

from onebox.hub.archive import unpack, unpacked_state
from onebox.hub.database import QUERIES
from onebox.hub.events import unpacked
from onebox.hub.model import TERMINAL, InvalidRequestError, Status, tags_from
from onebox.numbers import plain_number

_NO_LIMIT = -1
_LARGEST_PAGE: Final = 1_000  # as of Azure's tables, which do not look at the bytes of a page either
_SEPARATOR: Final = "|"


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
            self.add("status BETWEEN 3 AND 5")
            return "instances_unsuccessful"
        return "instances_by_creation"

    def between(self, column: str, from_us: int | None, to_us: int | None, token: str | None = None) -> None:
        """Filter by an instant, behind the page that a token ends.

        The token takes the place of the beginning, unless that is later: SQLite seeks by one of them only and
        would pass all former pages again.
        """
        if token is not None:
            instant, _, last_id = token.partition(_SEPARATOR)
            instant_us = plain_number(instant)
            if instant_us is None:
                raise InvalidRequestError("the continuation token is not one of this list")
            self.add(f"({column}, id) > (?, ?)", instant_us, last_id)
            from_us = None if from_us is None or from_us <= instant_us else from_us
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
