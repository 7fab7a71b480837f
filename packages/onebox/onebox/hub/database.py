"""The store's file: its schema, its named statements, its connections, and one transaction on it."""

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from onebox.hub.model import Effects, Kind, Lane, StoreUnusableError

_HERE: Final = Path(__file__).parent
_NAMED = re.compile(r"^-- name: (?P<name>[a-z_.]+)\n(?:--[^\n]*\n)+(?P<sql>.*?);$", re.MULTILINE | re.DOTALL)
_FORM = 1  # of the store; 0 is an empty file
_CACHED_STATEMENTS = 256
_CHECKPOINT_PAGES = 4000  # 16 MB of log: fewer, larger copies into the main file
_LARGEST_LOG_BYTES = 32_000_000  # kept between two checkpoints; a burst may need more
_SPARE_PAGES = 1000  # 4 MB: what is free for the next rows is not given back
_MOST_PAGES_BACK = 500  # of one transaction: bounds how long it takes


def _read_statements() -> Mapping[str, str]:
    text = (_HERE / "queries.sql").read_text(encoding="utf-8")
    return MappingProxyType({found["name"]: found["sql"] for found in _NAMED.finditer(text)})


SCHEMA: Final = (_HERE / "schema.sql").read_text(encoding="utf-8")
QUERIES: Final = _read_statements()


class StoreFile:
    """The files of an open store, to notice when they are deleted or others take their place.

    SQLite goes on with what it has open, of which nothing is left once the process ends.
    """

    def __init__(self, path: Path) -> None:
        # As texts: they are looked at after each commit, and a path's own `stat` costs a multiple.
        self._opened = {each: _identity(each) for each in (str(path), f"{path}-wal")}

    @property
    def trouble(self) -> str:
        """What has become of them; "" when they are in their place."""
        for path, opened in self._opened.items():
            if _identity(path) != opened:
                return f"{path} was deleted or replaced while it was open"
        return ""


def _identity(path: str) -> tuple[int, int] | None:
    """Return what tells a file from another under its name; None when there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - see above
    except OSError:
        return None
    return found.st_dev, found.st_ino


def open_writer(path: Path) -> sqlite3.Connection:
    """Open the one connection that writes; create what is missing.

    Commits are durable when they return (`synchronous = FULL`). The connection may be used from a second
    thread, by one at a time.

    Raises:
        StoreUnusableError: The file is of a later form.
        sqlite3.DatabaseError: It is no store, is damaged, or another process holds its lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    db = _connect(path)
    try:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # so that `give_pages_back` can
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        db.execute(f"PRAGMA journal_size_limit = {_LARGEST_LOG_BYTES}")
        _create(db, path)
        # A lock that another process holds must not stop the event loop: the writer tries again by itself.
        db.execute("PRAGMA busy_timeout = 0")
    except BaseException:
        db.close()
        raise
    return db


def _create(db: sqlite3.Connection, path: Path) -> None:
    (form,) = db.execute("PRAGMA user_version").fetchone()
    if form > _FORM:
        raise StoreUnusableError(
            f"{path} was written by a later version of onebox (form {form}, this one reads up to {_FORM}); "
            "update onebox, or choose another folder with --data"
        )
    db.executescript(f"BEGIN IMMEDIATE;\n{SCHEMA}\nPRAGMA user_version = {_FORM};\nCOMMIT;")


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that sees what is committed and cannot write."""
    db = _connect(path)
    db.execute("PRAGMA query_only = ON")
    return db


def find_damage(path: Path) -> Iterator[str]:
    """Yield what is wrong with a store's file, which may be in use; nothing when it is sound."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            yield from (line for (line,) in db.execute("PRAGMA integrity_check") if line != "ok")
    except sqlite3.DatabaseError as error:
        yield str(error)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=_CACHED_STATEMENTS
    )


@dataclass(slots=True)
class Transaction:
    """Runs named statements and gathers effects.

    Attributes:
        now_us: When the transaction is written; messages arrive then.
        next_seq: Numbers messages and activities.
    """

    db: sqlite3.Connection
    now_us: int
    next_seq: Callable[[], int]
    effects: Effects = field(default_factory=Effects)

    def run(self, name: str, *parameters: Any) -> sqlite3.Cursor:
        """Run one named statement."""
        return self.db.execute(QUERIES[name], parameters)

    def run_many(self, name: str, rows: Iterable[tuple[Any, ...]]) -> int:
        """Run one named statement for each row; return how many rows changed."""
        return self.db.executemany(QUERIES[name], rows).rowcount

    def give_pages_back(self) -> bool:
        """Let the file shrink by pages that deleted rows have left; return whether there may be more."""
        free: int = self.db.execute("PRAGMA freelist_count").fetchone()[0]
        pages = min(free - _SPARE_PAGES, _MOST_PAGES_BACK)
        if pages > 0:
            self.db.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()  # each row fetched frees a page
        return pages == _MOST_PAGES_BACK

    def post(
        self,
        target: str,
        kind: Kind,
        events: bytes,
        *,
        execution_id: str | None = None,
        due_us: int | None = None,
    ) -> bool:
        """Put a message into an inbox.

        Args:
            target: Instance id, or entity id.
            kind: What it asks for.
            events: Framed history events.
            execution_id: The execution that is meant; None means whichever runs.
            due_us: Not visible before; None, or an instant that is past, means now.

        Returns:
            Whether the target takes it: an instance may be gone, finished, or in another execution.
        """
        delayed = due_us is not None and due_us > self.now_us
        at_us = due_us if due_us is not None and delayed else self.now_us
        to = "message.post_to_entity" if is_entity(target) else "message.post_to_instance"
        row = (self.next_seq(), target, execution_id, kind.value, int(delayed), at_us, events)
        if self.run(to, *row).rowcount != 1:
            return False
        if delayed:
            self.effects.timers.append((at_us, target))
        else:
            self.effects.wake.append((target, Lane.NEW if kind is Kind.START else Lane.GOING))
        return True


def is_entity(target: str) -> bool:
    """Whether a target is an entity's id, not an instance's."""
    return target.startswith("@")
