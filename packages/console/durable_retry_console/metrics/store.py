"""Metrics over time in a table, one partition for each day, UTC; a row has all dependencies of one process.

    1|HHMM|WORKER   a minute, written again while it goes on
    5|HHMM|WORKER   five minutes, which long ranges are read from

A process writes both in the background, every few seconds while something happens, and once more at its end.
"""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, override

from durable_retry.storage import contents, tables
from durable_retry_console.background import BackgroundWriter
from durable_retry_console.metrics.counts import Counts, from_text
from durable_retry_console.metrics.minutes import MINUTES, Minutes, Unsaved

TABLE: Final = "RetryMetrics"

FLUSH_SECONDS: Final = 5.0
"""What a process that is killed can lose."""

_DAY: Final = timedelta(days=1)

type Cell = tuple[datetime, dict[str, Counts]]
"""Beginning of a minute or of five, and what happened to each dependency in one process."""


class MetricsWriter(BackgroundWriter):
    def __init__(self, minutes: Minutes) -> None:
        super().__init__("metrics", FLUSH_SECONDS)
        self._minutes = minutes
        self._worker = uuid.uuid4().hex[:12]
        minutes.on_change = self.wake

    @override
    def _write(self) -> None:
        unsaved = self._minutes.take()
        try:
            self.replace(TABLE, map(self._row_of, unsaved))
        except Exception:
            self._minutes.put_back(unsaved)
            raise

    def _row_of(self, one: Unsaved) -> tables.Row:
        begin = datetime.fromtimestamp(one.begin * 60, UTC)
        row_key = f"{one.minutes}|{begin:%H%M}|{self._worker}"
        return {"PartitionKey": _day_key(begin), "RowKey": row_key, **contents.packed("counts", one.counts)}


WRITER: Final = MetricsWriter(MINUTES)
"""The writer of this process."""


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
