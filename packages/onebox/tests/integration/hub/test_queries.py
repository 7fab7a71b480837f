"""The statements themselves: named, described, used, and never slower for the number of instances."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onebox.hub.database import QUERIES, open_writer
from onebox.hub.listing import InstanceFilter, Listing
from onebox.hub.model import Status
from scripts.processes import ROOT

_HUB = ROOT / "packages" / "onebox" / "onebox" / "hub"

# Run once per start, or by hand: they are meant to look at everything.
_LOOK_AT_EVERYTHING = {
    *("message.ready", "activity.ready", "entity.delete_empty", "entity.orphans"),
    *("message.hide", "activity.hide", "activity.show", "activity.hidden", "message.arrived"),
}


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


@pytest.mark.parametrize(
    "name",
    ["instance.insert", "turn.advance", "history.append", "message.post_to_instance", "activity.insert"],
)
def test_what_each_orchestration_writes_builds_no_table_for_the_statement(
    name: str, db: sqlite3.Connection
) -> None:
    statement = QUERIES[name]
    count = 7 if "?7" in statement else statement.count("?")
    steps = {row[1] for row in db.execute(f"EXPLAIN {statement}", [1] * count)}
    assert "OpenEphemeral" not in steps  # which takes 90 KB of memory for its pages


def test_every_statement_is_used() -> None:
    code = "".join(path.read_text() for path in _HUB.rglob("*.py"))
    assert [name for name in QUERIES if f'"{name}"' not in code] == []


def test_every_statement_is_read() -> None:
    written = re.findall(r"^-- name: (\S+)", (_HUB / "queries.sql").read_text(), re.MULTILINE)
    assert sorted(written) == sorted(QUERIES)


_EVERYTHING = (frozenset[Status](), "instances_by_creation")
_UNFINISHED = (frozenset({Status.RUNNING, Status.PENDING, Status.SUSPENDED}), "instances_unfinished")
_ENDED_BADLY = (frozenset({Status.FAILED}), "instances_unsuccessful")


@pytest.mark.parametrize(("statuses", "index"), [_EVERYTHING, _UNFINISHED, _ENDED_BADLY])
@pytest.mark.parametrize("token", [None, "5|op-5"])
def test_a_page_of_instances_is_read_from_an_index_in_its_order(
    statuses: frozenset[Status], index: str, token: str | None, db: sqlite3.Connection
) -> None:
    asked: list[str] = []
    db.set_trace_callback(asked.append)
    wanted = InstanceFilter(statuses=statuses, id_prefix="op-", created_from_us=1)
    Listing(db).instances(wanted, 20, token)
    db.set_trace_callback(None)
    first, *rest = (row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {asked[-1]}"))
    # The archive of each row that is read; any other step would be a sort of all that matches.
    assert rest == ["CORRELATED SCALAR SUBQUERY 1", "SEARCH archives USING INTEGER PRIMARY KEY (rowid=?)"]
    assert f"USING INDEX {index}" in first
    assert first.endswith("(created_us>?)" if token is None else "((created_us,id)>(?,?))")
