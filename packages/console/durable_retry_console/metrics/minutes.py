"""What happens to each dependency, counted per minute in this process from the facts of the core.

`metrics.store` writes it. Counting costs a few microseconds and never waits for storage. It may be
called from any thread.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from durable_retry.base.text import counted
from durable_retry.rules.facts import Fact
from durable_retry.runtime import clock
from durable_retry.telemetry.facts import subscribe
from durable_retry_console.metrics.counts import COUNTED, Counts, add, summed, to_text

CELL_MINUTES: Final = 5
"""Long ranges are read in cells of so many minutes."""
KEPT_CELLS: Final = 12
"""While storage is away, so many cells are kept, an hour."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unsaved:
    """A minute or a cell that changed since it was written."""

    minutes: int  # its length: 1 or `CELL_MINUTES`
    begin: int  # minutes since 1970
    counts: str  # all of it so far, so that it may be written again; the stored form


class Minutes:
    """The minutes of one process; those of a cell stay in memory until all of them are written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[int, dict[str, Counts]] = {}  # by minute and dependency
        self._changed: set[int] = set()  # minutes that are not written as they are now
        # Called at the first change after each `take`, not to block.
        self.on_change: Callable[[], None] | None = None

    def count(self, dependency: str, counts: Counts) -> None:
        with self._lock:
            minute, is_first = _present_minute(), not self._changed
            add(self._counts.setdefault(minute, {}).setdefault(dependency, {}), counts)
            self._changed.add(minute)
        if is_first and self.on_change is not None:
            self.on_change()

    def take(self) -> list[Unsaved]:
        """Return what changed since the last call, and forget what is written and over, or too old."""
        with self._lock:
            present = _present_minute() // CELL_MINUTES
            lost = {minute for minute in self._changed if minute // CELL_MINUTES < present - KEPT_CELLS}
            attempts = sum(
                counts.get("attempts", 0) for minute in lost for counts in self._counts[minute].values()
            )
            changed, self._changed = self._changed - lost, set()
            cells = {minute // CELL_MINUTES for minute in changed}
            self._counts = {
                minute: counts
                for minute, counts in self._counts.items()
                if minute // CELL_MINUTES in cells | {present}
            }
            unsaved = [Unsaved(1, minute, to_text(self._counts[minute])) for minute in sorted(changed)]
            unsaved += [
                Unsaved(CELL_MINUTES, cell * CELL_MINUTES, self._text_of_cell(cell)) for cell in sorted(cells)
            ]
        if lost:
            _log.warning(
                "%s of metrics with %s could not be written and are lost",
                counted(len(lost), "minute"),
                counted(int(attempts), "attempt"),
            )
        return unsaved

    def put_back(self, unsaved: Iterable[Unsaved]) -> None:
        """Take what could not be written as changed again."""
        with self._lock:
            self._changed |= {one.begin for one in unsaved if one.minutes == 1}

    def clear(self) -> None:
        """Forget everything. For tests."""
        with self._lock:
            self._counts.clear()
            self._changed.clear()

    def _text_of_cell(self, cell: int) -> str:
        minutes = [counts for minute, counts in self._counts.items() if minute // CELL_MINUTES == cell]
        names = {name: None for counts in minutes for name in counts}
        return to_text({name: summed(counts.get(name, {}) for counts in minutes) for name in names})


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
