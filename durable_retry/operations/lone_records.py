"""Until when a record of a key may have to answer because the history of its operation is gone.

While the history is there, the instance answers for its key. A submission reads the record only while some
record may have outlived its history. That is rare: histories outlive their keys, unless a run lasts for days,
`ttl_seconds` is long, or the settings change.

Table `Upkeep`: PK `records`   RK `alone`   `until`, `since`

Every process reads the row again within five minutes. Upkeep writes it first, and purges a history ten
minutes later: by then every process reads records.
"""

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from durable_retry.base.answers import read_or
from durable_retry.base.json_forms import JsonShape
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import LoopOwned
from durable_retry.storage import rounds, tables

_KEYS: Final = {"PartitionKey": "records", "RowKey": "alone"}

KNOWN_TO_ALL_AFTER: Final = timedelta(minutes=10)
READ_EVERY_SECONDS: Final = 300.0
KNOWN_SECONDS: Final = 480.0
"""How long a row that was read counts while it cannot be read again."""

_FURTHER: Final = timedelta(days=1)
"""How much later than needed a write sets `until`, so that a day's records cost one write."""

_AGAIN_SECONDS: Final = 10.0
"""The pause before another read after one that failed."""

_NEVER: Final = datetime.min.replace(tzinfo=UTC)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Alone(JsonShape):
    """The row: `until` when records may answer alone, and since when it says so."""

    until: datetime
    since: datetime

    def covers(self, until: datetime, now: datetime) -> bool:
        return until <= self.until and self.since <= now - KNOWN_TO_ALL_AFTER


_NONE: Final = _Alone(_NEVER, _NEVER)


def _read_or_none(row: tables.Row) -> _Alone:
    return read_or(partial(_Alone.from_json, row), lambda _: _NONE)


@dataclass(slots=True)
class _Known:
    row: _Alone = _NONE
    # On the monotonic clock: when it is to be read again, and until when it counts.
    read_again: float = float("-inf")
    counts_until: float = float("-inf")
    reading: asyncio.Task[None] | None = None  # the latest read


_known: Final = LoopOwned(_Known)


def may_answer_alone(now: datetime) -> bool:
    """Whether a record may answer without its history; True while that is not known.

    The call does not wait for the row: it is read in the background, at most once in five minutes.
    """
    known, at = _known.get(), clock.monotonic_seconds()
    if at >= known.read_again:
        known.read_again = at + _AGAIN_SECONDS
        known.reading = asyncio.get_running_loop().create_task(_read(known, at))
    return at >= known.counts_until or now < known.row.until


async def _read(known: _Known, at: float) -> None:
    try:
        row = await tables.read(rounds.TABLE, *_KEYS.values())
        known.row = _NONE if row is None else _Alone.from_json(row)
    except Exception as error:  # noqa: BLE001 - no submission fails for it: it reads the record
        _log.warning("it is not known whether records answer without histories: %s", type(error).__name__)
    else:
        known.read_again, known.counts_until = at + READ_EVERY_SECONDS, at + KNOWN_SECONDS


async def let_answer_alone(until: datetime, now: datetime) -> bool:
    """Let a record answer without its history until an instant; return whether every process reads it now."""
    known = _known.get()
    if known.row.covers(until, now):
        return True

    def extended(row: _Alone | None) -> _Alone:
        if row is not None and until <= row.until:
            return row
        is_looked_for = row is not None and row.until > now + KNOWN_TO_ALL_AFTER
        return _Alone(until + _FURTHER, row.since if row is not None and is_looked_for else now)

    known.row = await tables.change_row(
        rounds.TABLE, _KEYS, extended, read=_read_or_none, write=_Alone.to_json
    )
    return known.row.covers(until, now)
