"""What happens to each dependency, counted per minute in this process from the facts of the core.

`metrics.store` writes it. Counting costs a few microseconds and never waits for storage. It may be
called from any thread.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from durable_retry.base.names import Priority
from durable_retry.base.text import counted
from durable_retry.rules import facts
from durable_retry.rules.circuit.breaker import FREE
from durable_retry.rules.operations.status import lasted_seconds
from durable_retry.runtime import clock
from durable_retry.telemetry.facts import subscribe
from durable_retry.telemetry.spans import dependency_label
from durable_retry_console.metrics.counts import (
    Counts,
    add,
    of_attempt,
    of_end,
    of_limits,
    of_start,
    of_wait,
    summed,
    to_text,
)

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
    subscribe(facts.Submitted, _count_submission)
    subscribe(facts.AttemptEnded, _count_attempt)
    subscribe(facts.DeliveryEnded, _count_attempt)
    subscribe(facts.WaitEnded, _count_wait)
    subscribe(facts.OperationEnded, _count_end)
    subscribe(facts.CircuitChanged, _count_opening)
    subscribe(facts.LimitsRead, _count_limits)


def _count_submission(fact: facts.Submitted) -> None:
    if fact.outcome is facts.SubmissionOutcome.STARTED:
        MINUTES.count(fact.operation.dependency, of_start(fact.operation.priority))


def _count_attempt(fact: facts.AttemptEnded | facts.DeliveryEnded) -> None:
    outcome = fact.outcome
    category = None if outcome.category is None else outcome.category.value
    # A success is counted whatever its attempt says of itself.
    is_counted = not outcome.never_left or category is None
    counts = of_attempt(outcome.number, category, outcome.duration_ms, counted=is_counted)
    MINUTES.count(dependency_label(fact.operation.dependency), counts)


def _count_wait(fact: facts.WaitEnded) -> None:
    counts = of_wait(fact.kind, fact.seconds, fact.late_seconds, fact.operation.priority)
    MINUTES.count(fact.operation.dependency, counts)


def _count_end(fact: facts.OperationEnded) -> None:
    document = fact.document
    priority = None if document.get("priority") is None else Priority(document["priority"])
    counts = of_end(document["status"], lasted_seconds(document), priority)
    MINUTES.count(document["dependency"], counts)


def _count_opening(fact: facts.CircuitChanged) -> None:
    # A probe that fails opens it again: the outage was counted.
    if fact.before in FREE and fact.after not in FREE:
        MINUTES.count(fact.dependency, {"openings" if fact.limit_key is None else "key_openings": 1})


def _count_limits(fact: facts.LimitsRead) -> None:
    MINUTES.count(fact.dependency, of_limits(fact.concurrency, fact.per_second))
