"""The statements themselves: named, described, used, and never slower for the number of instances."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onebox.hub.store.database import open_writer
from onebox.hub.store.sql import QUERIES

_HUB = Path(__file__).parents[3] / "onebox" / "hub"

# Run once per start, or by hand: they are meant to look at everything.
_LOOK_AT_EVERYTHING = {"message.ready", "activity.ready", "entity.delete_empty", "entity.orphans"}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(tmp_path / "hub.db")) as opened:
        yield opened


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_no_statement_searches_a_whole_table(name: str, db: sqlite3.Connection) -> None:
    statement = QUERIES[name]
    numbered = [int(mark) for mark in re.findall(r"\?(\d)", statement)]
    count = max(numbered) if numbered else statement.count("?")
    plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", [1] * count)]
    scans = [step for step in plan if step.startswith("SCAN") and "CONSTANT ROW" not in step]
    assert name in _LOOK_AT_EVERYTHING or not scans, plan


def test_every_statement_is_used() -> None:
    code = "".join(path.read_text() for path in _HUB.rglob("*.py"))
    assert [name for name in QUERIES if f'"{name}"' not in code] == []


def test_every_statement_is_read() -> None:
    written = re.findall(r"^-- name: (\S+)", (_HUB / "store" / "queries.sql").read_text(), re.MULTILINE)
    assert sorted(written) == sorted(QUERIES)
