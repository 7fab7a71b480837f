"""`DUE_TIMERS` timers that are due at once: memory stays bounded, and others are served while they drain.

What was seen is in `looks.json` in the test's folder.
"""

import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.onebox.process import AS_SHIPPED, OneboxProcess, resident

TIMERS = int(os.environ.get("DUE_TIMERS", "5000"))
MOST_BYTES_OF_A_TIMER = 1_000
MOST_MEMORY_GROWTH = 32_000_000 + MOST_BYTES_OF_A_TIMER * TIMERS
SECONDS_PER_TIMER = 0.05
AN_HOUR = 3_600

pytestmark = [pytest.mark.long, pytest.mark.timeout(int(TIMERS * SECONDS_PER_TIMER) + 300)]

COPIES = (
    "WITH RECURSIVE number (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM number WHERE n < ?) "
    "INSERT INTO {table} ({columns}) SELECT {values} FROM {table} CROSS JOIN number WHERE {key} = 'nap'"
)
KEYS = {"instances": "id", "history": "instance_id", "messages": "target"}


def copy_the_nap(store: Path) -> None:
    """Make as many copies of an orchestration that waits for its timer, and have all of them due."""
    with closing(sqlite3.connect(store)) as db:
        for table, key in KEYS.items():
            names = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})") if name != "seq"]
            values = ["'nap-' || n" if name == key else name for name in names]
            query = COPIES.format(table=table, columns=", ".join(names), values=", ".join(values), key=key)
            db.execute(query, (TIMERS,))
        db.execute("UPDATE messages SET due_us = ?", (time.time_ns() // 1_000,))
        db.commit()


def napping(store: Path) -> int:
    """Return how many copies have not ended."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        query = "SELECT count(*) FROM instances WHERE completed_us IS NULL AND id LIKE 'nap-%'"
        (count,) = db.execute(query).fetchone()
    return int(count)


def timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1_000


def percentiles(milliseconds: list[float]) -> dict[str, float]:
    ranked = sorted(milliseconds)
    return {f"p{share}": round(ranked[len(ranked) * share // 100], 1) for share in (50, 99)}


def memory_of(onebox: OneboxProcess) -> dict[str, int]:
    workers = onebox.client.get("/admin/host/status").json()["workers"]
    assert onebox.server.process is not None
    pids = {"host": onebox.server.process.pid, "worker": workers[0]["pid"]}
    return {name: resident(pid) for name, pid in pids.items()}


def test_timers_that_are_due_at_once_neither_fill_memory_nor_hold_up_others(tmp_path: Path) -> None:
    onebox = OneboxProcess(tmp_path, FUNCTIONS_WORKER_PROCESS_COUNT=AS_SHIPPED)
    onebox.server.start()
    onebox.start_orchestration("nap", "nap", AN_HOUR)
    onebox.until("nap", "Running")
    assert onebox.server.stop() == 0
    copy_the_nap(onebox.data / "hub.sqlite")
    began = time.monotonic()
    onebox.server.start()
    statuses: list[float] = []
    starts: list[float] = []
    memory = [memory_of(onebox)]
    try:
        while left := napping(onebox.data / "hub.sqlite"):
            statuses.append(timed(lambda: onebox.client.get("/admin/host/status").raise_for_status()))
            name = f"beside-{len(starts)}"
            starts.append(timed(lambda name=name: onebox.start_orchestration("greet", name, [])))  # type: ignore[misc] # a default binds it
            memory.append(memory_of(onebox))
            passed = time.monotonic() - began
            seen = {
                "seconds": passed,
                "left": left,
                "status": percentiles(statuses),
                "start": percentiles(starts),
                "first": memory[0],
                "most": {name: max(each[name] for each in memory) for name in memory[0]},
            }
            (tmp_path / "looks.json").write_text(json.dumps(seen))
            assert passed < TIMERS * SECONDS_PER_TIMER + 60, seen
    finally:
        onebox.close()
    for process, bytes_ in memory[0].items():
        assert max(each[process] for each in memory) - bytes_ < MOST_MEMORY_GROWTH, seen
