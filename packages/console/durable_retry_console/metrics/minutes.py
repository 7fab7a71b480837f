"""What happens to each dependency: counted per minute in this process from facts, and kept in a table.

Counting costs a few microseconds and never waits for storage. It may be called from any thread. A process
writes in the background, every few seconds while something happens, and once more at its end.

The table has one partition for each day, UTC; a row has all dependencies of one process.

    1|HHMM|WORKER   a minute, written again while it goes on
    5|HHMM|WORKER   five minutes, which long ranges are read from
"""

import asyncio
import logging
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, override

from durable_retry.base.text import counted
from durable_retry.rules.facts import Fact
from durable_retry.runtime import clock
from durable_retry.storage import contents, tables
from durable_retry.telemetry.facts import subscribe
from durable_retry_console.background import BackgroundWriter
from durable_retry_console.metrics.counts import COUNTED, Counts, add, from_text, summed, to_text

TABLE: Final = "RetryMetrics"

FLUSH_SECONDS: Final = 5.0
"""What a process that is killed can lose."""

CELL_MINUTES: Final = 5
"""Long ranges are read in cells of so many minutes."""
KEPT_CELLS: Final = 12
"""While storage is away, so many cells are kept, an hour."""

_DAY: Final = timedelta(days=1)

_log = logging.getLogger(__name__)


class Minutes(BackgroundWriter[int, None]):
    """The minutes of one process; those of a cell stay in memory until all of them are written."""

    def __init__(self) -> None:
        super().__init__("metrics", FLUSH_SECONDS)
        self._worker = uuid.uuid4().hex[:12]
        self._counts: dict[int, dict[str, Counts]] = {}  # by minute and dependency

    def count(self, dependency: str, counts: Counts) -> None:
        with self._lock:
            minute = _present_minute()
            add(self._counts.setdefault(minute, {}).setdefault(dependency, {}), counts)
            self.hold(minute, None)

    @override
    def _write(self, held: Mapping[int, None]) -> None:
        self.replace(TABLE, self._rows_of(held))

    def _rows_of(self, changed: Iterable[int]) -> list[tables.Row]:
        """Return the rows of minutes, and of their cells; forget what is written and over, or too old.

        A row has all of its minute or cell so far, so that it may be written again.
        """
        with self._lock:
            present = _present_minute() // CELL_MINUTES
            known = [minute for minute in sorted(changed) if minute in self._counts]
            lost = [minute for minute in known if minute // CELL_MINUTES < present - KEPT_CELLS]
            attempts = sum(
                counts.get("attempts", 0) for minute in lost for counts in self._counts[minute].values()
            )
            kept = known[len(lost) :]
            cells = {minute // CELL_MINUTES: list[dict[str, Counts]]() for minute in kept}
            needed = cells.keys() | {present} | {minute // CELL_MINUTES for minute in self.held}
            self._counts = {
                minute: counts for minute, counts in self._counts.items() if minute // CELL_MINUTES in needed
            }
            rows = [self._row(1, minute, self._counts[minute]) for minute in kept]
            for minute, counts in self._counts.items():
                cells.get(minute // CELL_MINUTES, []).append(counts)
            for cell, of_cell in sorted(cells.items()):
                names = {name: None for counts in of_cell for name in counts}
                sums = {name: summed(counts.get(name, {}) for counts in of_cell) for name in names}
                rows.append(self._row(CELL_MINUTES, cell * CELL_MINUTES, sums))
        if lost:
            _log.warning(
                "%s of metrics with %s could not be written and are lost",
                counted(len(lost), "minute"),
                counted(int(attempts), "attempt"),
            )
        return rows

    def _row(self, minutes: int, begin: int, counts: Mapping[str, Counts]) -> tables.Row:
        """Return the row of a minute or a cell; `begin` in minutes since 1970."""
        at = datetime.fromtimestamp(begin * 60, UTC)
        row_key = f"{minutes}|{at:%H%M}|{self._worker}"
        return {
            "PartitionKey": _day_key(at),
            "RowKey": row_key,
            **contents.packed("counts", to_text(counts)),
        }

    def clear(self) -> None:
        """Forget everything. For tests."""
        with self._lock:
            self._counts.clear()
            self.held.clear()


def _present_minute() -> int:
    return int(clock.now().timestamp()) // 60


MINUTES: Final = Minutes()
"""The minutes of this process."""


def record_facts() -> None:
    """Subscribe to what is counted per minute."""
    for kind in COUNTED:
        subscribe(kind, _count)


def _count(fact: Fact) -> None:
    dependency, counts = COUNTED[type(fact)](fact)
    if counts:
        MINUTES.count(dependency, counts)


type Cell = tuple[datetime, dict[str, Counts]]
"""Beginning of a minute or of five, and what happened to each dependency in one process."""


async def read_cells(minutes: int, begin: datetime, end: datetime) -> list[Cell]:
    """Return what happened in a range, in no order.

    Args:
        minutes: 1, or `CELL_MINUTES`.
        begin: Start of the range, where a cell begins.
        end: Its end, exclusive.
    """
    first_day = begin.replace(hour=0, minute=0)
    days = [first_day + number * _DAY for number in range(-((first_day - end) // _DAY))]
    cells = await asyncio.gather(*(_cells_of_day(day, minutes, begin, end) for day in days))
    return [cell for of_day in cells for cell in of_day]


async def _cells_of_day(day: datetime, minutes: int, begin: datetime, end: datetime) -> list[Cell]:
    last = min(end, day + _DAY) - timedelta(microseconds=1)
    page = await tables.rows_between(
        TABLE, _day_key(day), after=f"{minutes}|{max(begin, day):%H%M}", before=f"{minutes}|{last:%H%M}|~"
    )
    return contents.readable(TABLE, page.rows, partial(_cell_of_row, day))


def _cell_of_row(day: datetime, row: tables.Row) -> Cell:
    time = row["RowKey"].split("|")[1]
    at = day.replace(hour=int(time[:2]), minute=int(time[2:]))
    return at, from_text(contents.unpacked("counts", row))


async def remove_before(instant: datetime, limit: int) -> int:
    """Delete rows of days that ended before an instant, the oldest first; return how many."""
    found = await tables.rows_after(TABLE, "!~", limit=limit, only=tables.KEYS)
    old = [row for row in found if row["PartitionKey"] < _day_key(instant)]
    await tables.delete_rows(TABLE, old)
    return len(old)


def _day_key(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d}"
