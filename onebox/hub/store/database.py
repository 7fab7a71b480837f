"""Opens the store's file."""

import sqlite3
from pathlib import Path

from onebox.hub.store.sql import SCHEMA

_CACHED_STATEMENTS = 256
_CHECKPOINT_PAGES = 4000  # 16 MB of log: fewer, larger copies into the main file


def open_writer(path: Path) -> sqlite3.Connection:
    """Open the one connection that writes, and create what is missing.

    Commits are durable when they return (`synchronous = FULL`). The connection may be used from a second
    thread, by one at a time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    db = _connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    db.executescript(SCHEMA)
    return db


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that sees what is committed and cannot write."""
    db = _connect(path)
    db.execute("PRAGMA query_only = ON")
    return db


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=_CACHED_STATEMENTS
    )
