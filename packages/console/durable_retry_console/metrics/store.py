"""Metrics over time in a table, one partition for each day, UTC.

    m|DEPENDENCY|HHMM|WORKER   a minute in one process, written again while it goes on
    h|DEPENDENCY|HH            an hour of all processes in cells of five minutes, folded from its minutes

A process writes in the background, every few seconds while something happens, and once more at its end.
"""

import asyncio
import json
import logging
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import batched, groupby
from operator import methodcaller
from typing import Any, Final, override

from durable_retry.engine.base.errors import StorageRefusedError
from durable_retry.engine.base.unreadable import read_or
from durable_retry.stores.storage import contents, rounds, tables
from durable_retry_console.background import BackgroundWriter
from durable_retry_console.metrics.figures import CELL, Figures, floored
from durable_retry_console.metrics.minutes import MINUTES, Minutes, Unsaved

TABLE: Final = "RetryMetrics"

FLUSH_SECONDS: Final = 5.0
"""What a process that is killed can lose."""
# Changes in one transaction; the service takes 100.
_AT_ONCE: Final = 90

_HOUR: Final = timedelta(hours=1)

_log = logging.getLogger(__name__)

type Cell = tuple[str, datetime, Figures]
"""Dependency, beginning of the minute or of the five minutes, and what happened."""


class MetricsWriter(BackgroundWriter):
    """Writes the minutes of this process."""

    def __init__(self, minutes: Minutes) -> None:
        super().__init__("metrics", FLUSH_SECONDS)
        self._minutes = minutes
        self._worker = uuid.uuid4().hex[:12]

    @override
    def begin(self) -> None:
        self._minutes.when_changed(self.wake)
        super().begin()

    @override
    def _write(self) -> bool:
        unsaved = self._minutes.unsaved()
        for day, of_day in groupby(unsaved, lambda one: _day_key(_instant_of_minute(one.minute))):
            for some in batched(of_day, _AT_ONCE, strict=False):
                try:
                    self._write_rows([self._row_of_minute(day, one) for one in some])
                except Exception as error:  # noqa: BLE001 - the minutes stay, and are written later
                    if not self.is_over(error):
                        _log.warning("metrics were not written: %s: %s", type(error).__name__, error)
                    return False
                self._minutes.saved(some)
        return True

    def _write_rows(self, rows: Sequence[tables.Row]) -> None:
        if self.is_ending:
            tables.replace_each(TABLE, rows)
        else:
            changes = [("upsert", row, {"mode": tables.REPLACE}) for row in rows]
            tables.with_table(TABLE, methodcaller("submit_transaction", changes))

    def _row_of_minute(self, day: str, one: Unsaved) -> tables.Row:
        row_key = f"m|{one.dependency}|{_instant_of_minute(one.minute):%H%M}|{self._worker}"
        return {"PartitionKey": day, "RowKey": row_key, "figures": one.figures}


WRITER: Final = MetricsWriter(MINUTES)
"""The writer of this process."""


async def read_cells(
    dependencies: Sequence[str], begin: datetime, end: datetime, folded_until: datetime
) -> list[Cell]:
    """Return what happened in a range, in no order.

    Args:
        begin: Start of the range; an hour's cells are returned whole.
        end: Its end, exclusive.
        folded_until: Minutes before this instant are folded.
    """
    reads = []
    for day in _days_between(begin, end):
        if begin < folded_until:
            reads.append(_cells_of_hours(day, dependencies))
        first = max(begin, folded_until, day)
        last = min(end, day + timedelta(days=1) - timedelta(minutes=1))
        if first <= last:
            reads.extend(_cells_of_minutes(day, dependency, first, last) for dependency in dependencies)
    return [cell for cells in await asyncio.gather(*reads) for cell in cells]


async def _cells_of_hours(day: datetime, dependencies: Sequence[str]) -> list[Cell]:
    # One query for a few dependencies: their hours stand side by side.
    after = f"h|{min(dependencies)}|" if dependencies else "h|"
    before = f"h|{max(dependencies)}|~" if dependencies else "h|"
    page = await tables.rows_between(TABLE, _day_key(day), after=after, before=before)
    cells: list[Cell] = []
    for of_hour in contents.readable(TABLE, page.rows, partial(_cells_of_row, day)):
        cells.extend(cell for cell in of_hour if cell[0] in dependencies)
    return cells


def _cells_of_row(day: datetime, row: tables.Row) -> list[Cell]:
    _, dependency, hour = row["RowKey"].split("|")
    at = day + timedelta(hours=int(hour))
    return [
        (dependency, at + timedelta(minutes=int(minute)), figures)
        for minute, figures in _figures_of_hour(row).items()
    ]


async def _cells_of_minutes(day: datetime, dependency: str, first: datetime, last: datetime) -> list[Cell]:
    page = await tables.rows_between(
        TABLE,
        _day_key(day),
        after=f"m|{dependency}|{first:%H%M}",
        before=f"m|{dependency}|{last:%H%M}|~",
    )
    return contents.readable(
        TABLE, page.rows, lambda row: (dependency, _minute_of_row(day, row), _figures_of_row(row))
    )


_FOLDED: Final = "metrics"

# How far back to look for minutes that were never folded, where nothing was folded yet.
_UNKNOWN_SINCE: Final = timedelta(days=1)


async def read_folded_until(now: datetime) -> datetime:
    """Return the instant before which minutes are folded."""
    text = (await rounds.read_round(_FOLDED)).after
    unknown = floored(now - _UNKNOWN_SINCE, _HOUR)
    return read_or(lambda: _instant_of_fold(text), lambda _: unknown)


def _instant_of_fold(text: str) -> datetime:
    until = datetime.fromisoformat(text)
    if until.tzinfo is None:
        raise ValueError(f"{text!r} has no offset")
    return until


async def fold_hour(hour: datetime) -> int:
    """Fold the minutes of an hour into one row for each dependency, and note that they are.

    Each transaction adds some minutes to the row and deletes them, so nothing counts twice after a crash.

    Raises:
        StorageRefusedError: Somebody else folds the same hour; the next run looks again.
    """
    page = await tables.rows_between(TABLE, _day_key(hour), after="m|", before="m|~", only=tables.KEYS)
    places = contents.readable(TABLE, page.rows, lambda row: str(row["RowKey"]).split("|")[1:3])
    names = {name for name, minute in places if minute[:2] == f"{hour:%H}"}
    folded = sum([await _fold_hour_of_dependency(hour, name) for name in sorted(names)])
    await rounds.write_round(_FOLDED, rounds.Round((hour + _HOUR).isoformat()))
    return folded


async def _fold_hour_of_dependency(hour: datetime, dependency: str) -> int:
    begin = f"m|{dependency}|{hour:%H}"
    page = await tables.rows_between(TABLE, _day_key(hour), after=begin, before=f"{begin}~")
    for some in batched(page.rows, _AT_ONCE, strict=False):
        await _fold_rows(hour, dependency, some)
    return len(page.rows)


async def _fold_rows(hour: datetime, dependency: str, rows: Iterable[tables.Row]) -> None:
    keys = {"PartitionKey": _day_key(hour), "RowKey": f"h|{dependency}|{hour:%H}"}
    stored = await tables.read_version(TABLE, *keys.values())
    held = [] if stored is None else contents.readable(TABLE, [stored.row], _figures_of_hour)
    merged = held[0] if held else {}
    listed = list(rows)
    minutes = contents.readable(TABLE, listed, lambda row: (_minute_of_row(hour, row), _figures_of_row(row)))
    for at, figures in minutes:
        merged.setdefault(str(floored(at, CELL).minute), Figures()).add(figures)
    # Also those that cannot be read: they would be looked at again for ever.
    deletions: list[tables.Change] = [("delete", tables.keys_of(row)) for row in listed]
    text = json.dumps({minute: figures.to_json() for minute, figures in merged.items()})
    written = {**keys, **contents.packed("cells", text)}
    if not await tables.transact(TABLE, [tables.written_over(stored, written), *deletions]):
        raise StorageRefusedError(f"{keys['RowKey']} was written meanwhile")


async def remove_before(instant: datetime, limit: int) -> int:
    """Delete rows of days that ended before an instant, the oldest first; return how many."""
    found = await tables.rows_after(TABLE, "!~", limit=limit, only=tables.KEYS)
    old = [row for row in found if row["PartitionKey"] < _day_key(instant)]
    for _, of_day in groupby(old, lambda row: str(row["PartitionKey"])):
        for some in batched(of_day, _AT_ONCE, strict=False):
            await tables.transact(TABLE, [("delete", tables.keys_of(row)) for row in some])
    return len(old)


def _days_between(begin: datetime, end: datetime) -> list[datetime]:
    first = floored(begin, timedelta(days=1))
    return [first + timedelta(days=number) for number in range((end - first) // timedelta(days=1) + 1)]


def _day_key(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d}"


def _instant_of_minute(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * 60, UTC)


def _minute_of_row(day: datetime, row: tables.Row) -> datetime:
    text = row["RowKey"].split("|")[2]
    return day.replace(hour=int(text[:2]), minute=int(text[2:]))


def _figures_of_row(row: tables.Row) -> Figures:
    return Figures.from_json_text(row["figures"])


def _figures_of_hour(row: tables.Row) -> dict[str, Figures]:
    cells: dict[str, Any] = json.loads(contents.unpacked("cells", row))
    return {minute: Figures.from_json(figures) for minute, figures in cells.items()}
