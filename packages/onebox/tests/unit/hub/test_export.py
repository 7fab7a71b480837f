"""The export of a store that a host goes on writing."""

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import override

from onebox.hub.archive import Parts, pack
from onebox.hub.export import export
from onebox.hub.model import Status

TABLES = """
PRAGMA journal_mode = wal;
CREATE TABLE instances (id, name, status, input, output, custom_status, created_us, updated_us, completed_us,
    archive);
CREATE TABLE archives (seq INTEGER PRIMARY KEY, packed);
CREATE TABLE entities (id, state, modified_us);
CREATE TABLE activities (seq INTEGER PRIMARY KEY, name, instance_id, input);
CREATE TABLE messages (seq INTEGER PRIMARY KEY, target, kind, due_us);
"""


class Host(io.StringIO):
    """Restores every instance, as a host does, once the first line is written."""

    def __init__(self, store: Path) -> None:
        super().__init__()
        self._store = store

    @override
    def write(self, line: str) -> int:
        with closing(sqlite3.connect(self._store)) as db, db:
            db.execute("DELETE FROM archives")
        return super().write(line)


def test_an_export_shows_one_state_while_the_host_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "hub.sqlite"
    with closing(sqlite3.connect(store)) as db:
        db.executescript(TABLES)
        for number in (1, 2):
            packed = pack(Parts(b"", f"[{number}]", None, None))
            db.execute("INSERT INTO archives VALUES (?, ?)", (number, packed))
            row = (f"i{number}", "greet", Status.COMPLETED, None, None, None, 1, 1, 1, number)
            db.execute("INSERT INTO instances VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        db.commit()
        host = Host(store)
        lost = export(store, host)  # with a connection open, as the host's: the file stays in WAL mode
    shown = [json.loads(line) for line in host.getvalue().splitlines()]
    assert (lost, [each["input"] for each in shown]) == (0, ["[1]", "[2]"])


def test_what_waits_to_be_done_is_exported(tmp_path: Path) -> None:
    store, lines = tmp_path / "hub.sqlite", io.StringIO()
    with closing(sqlite3.connect(store)) as db, db:
        db.executescript(TABLES)
        db.execute("INSERT INTO activities VALUES (7, 'attempt', 'i1', '1')")
        db.executemany("INSERT INTO messages VALUES (?, ?, 'timer', 1)", [(3, "i1"), (4, "i2")])
    with closing(sqlite3.connect(store)):  # as above
        assert export(store, lines) == 0
    shown = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [each.get("activity") or each["message_to"] for each in shown] == ["attempt", "i1", "i2"]
