"""What can be read from a store's file, damaged or not: one JSON object for each thing that it holds.

SQLite ends a query at the first damaged page. So each table is read from both ends until that happens, and
what lies between row by row: a damaged page costs the rows on it.
"""

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

from onebox.hub.archive import unpack, unpacked_state
from onebox.hub.model import Status

# Named, since a table with a key of whole numbers calls it by the name of the key.
_ROW: Final = "SELECT rowid AS rowid, * FROM {table} WHERE rowid = ?"
# One row a query: the driver looks for the next row before it returns one, and that error would cost both.
_NEXT: Final = "SELECT rowid AS rowid, * FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT 1"
_PREVIOUS: Final = (
    "SELECT rowid AS rowid, * FROM {table} WHERE rowid > ? AND rowid < ? ORDER BY rowid DESC LIMIT 1"
)
_HIGHEST: Final = 2**63 - 1
_UNREADABLE: Final = (sqlite3.DatabaseError, zlib.error, ValueError)

type Row = dict[str, Any]
type Shown = Callable[["_Store", Row], Row]


@dataclass(slots=True)
class _Store:
    """A store's file that is read, and how many rows of it could not be."""

    db: sqlite3.Connection
    lost: int = 0

    def rows(self, table: str) -> Iterator[Row]:
        """Yield the rows of a table that can be read."""
        last = 0
        try:
            while row := self._row(_NEXT, table, last):
                last = row["rowid"]
                yield row
        except sqlite3.DatabaseError:
            yield from self._rows_above(table, last)

    def _rows_above(self, table: str, last: int) -> Iterator[Row]:
        """Yield those behind the first that cannot be read."""
        lowest = _HIGHEST
        try:
            while row := self._row(_PREVIOUS, table, last, lowest):
                lowest = row["rowid"]
                yield row
        except sqlite3.DatabaseError:
            if lowest == _HIGHEST:
                self.lost += 1  # at least: nobody knows how many there are
                return
        for rowid in range(last + 1, lowest):
            try:
                if row := self._row(_ROW, table, rowid):
                    yield row
            except sqlite3.DatabaseError:
                self.lost += 1

    def _row(self, query: str, table: str, *parameters: int) -> Row | None:
        row = self.db.execute(query.format(table=table), parameters).fetchone()
        return None if row is None else dict(row)

    def archived(self, seq: int | None) -> Row:
        """Return the input, output and custom status of an instance that is packed, if they can be read."""
        if seq is None:
            return {}
        try:
            row = self._row(_ROW, "archives", seq)
            parts = unpack(row["packed"] if row else b"")
        except _UNREADABLE:
            self.lost += 1
            return {}
        return {"input": parts.input, "output": parts.output, "custom_status": parts.custom_status}


def _instance(store: _Store, row: Row) -> Row:
    row |= store.archived(row["archive"])
    texts = {name: row[name] for name in ("input", "output", "custom_status")}
    instants = {f"{name}_at": _instant(row[f"{name}_us"]) for name in ("created", "updated", "completed")}
    return {
        "instance": row["id"],
        "name": row["name"],
        "status": Status(row["status"]).name,
        **texts,
        **instants,
    }


def _entity(_: _Store, row: Row) -> Row:
    return {
        "entity": row["id"],
        "state": unpacked_state(row["state"]),
        "modified_at": _instant(row["modified_us"]),
    }


def _activity(_: _Store, row: Row) -> Row:
    return {"activity": row["name"], "of_instance": row["instance_id"], "input": row["input"]}


def _message(_: _Store, row: Row) -> Row:
    return {"message_to": row["target"], "kind": row["kind"], "due_at": _instant(row["due_us"])}


_TABLES: Final[dict[str, Shown]] = {
    "instances": _instance,
    "entities": _entity,
    "activities": _activity,
    "messages": _message,
}


def _instant(microseconds: int | None) -> str | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat()


def export(path: Path, lines: TextIO) -> int:
    """Write what can be read from a store, an object in JSON a line; return how much was found unreadable.

    Raises:
        sqlite3.DatabaseError: Nothing can be read: the file's first page is damaged.
    """
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA user_version")
        # One state of all tables: a host that goes on packs and removes what a row read before leads to.
        db.execute("BEGIN")
        store = _Store(db)
        for table, shown in _TABLES.items():
            for row in store.rows(table):
                try:
                    lines.write(json.dumps(shown(store, row), ensure_ascii=False) + "\n")
                except _UNREADABLE:
                    store.lost += 1
        return store.lost
