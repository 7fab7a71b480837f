"""What happens to each dependency, counted per minute in this process.

`console.metrics.store` writes it. Counting costs a few microseconds and never waits for storage. It may be
called from any thread.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from durable_retry import clock
from durable_retry.engine.base.names import Priority
from durable_retry.engine.base.text import counted
from durable_retry.engine.circuit.breaker import FREE
from durable_retry.engine.facts import (
    AttemptEnded,
    CircuitChanged,
    DeliveryEnded,
    LimitsRead,
    OperationEnded,
    SubmissionOutcome,
    Submitted,
    WaitEnded,
)
from durable_retry.engine.operations.debounce import DebounceOutcome, debounce_outcome
from durable_retry.engine.operations.status import lasted_seconds
from durable_retry.telemetry.facts import subscribe
from durable_retry.telemetry.spans import dependency_label
from durable_retry_console.metrics.figures import Figures, LimitKind

MOST_SLOTS: Final = 2_000
"""Minutes of dependencies that are kept while storage is away; the oldest go first."""
KEPT_MINUTES: Final = 60
"""An older minute is not written any more: `console.metrics.series` folds its hour soon after this time."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Slot:
    """One dependency's minute.

    Attributes:
        version: Goes up with each change.
        saved: The version that was written last; 0 when none was.
    """

    figures: Figures = field(default_factory=Figures)
    version: int = 0
    saved: int = 0


@dataclass(frozen=True, slots=True)
class Unsaved:
    """A minute with changes that are not written yet.

    Attributes:
        minute: Minutes since 1970.
        version: To be given back when it is written.
        figures: All of the minute so far, as JSON.
    """

    minute: int
    dependency: str
    version: int
    figures: str


class Minutes:
    """The minutes of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[tuple[int, str], _Slot] = {}
        self._is_changed = False
        self._on_change: Callable[[], None] | None = None

    def when_changed(self, call: Callable[[], None] | None) -> None:
        """Call a function at the first change after each `unsaved`; it must not block."""
        self._on_change = call

    def started(self, dependency: str, priority: Priority | None = None) -> None:
        """Count an operation that was accepted."""
        with self._lock:
            self._figures_of_dependency(dependency).count_start(priority)
        self._note_change()

    def attempted(
        self, dependency: str, number: int, category: str | None, duration_ms: float, *, counted: bool
    ) -> None:
        """Count an attempt, see `Figures.count_attempt`."""
        with self._lock:
            self._figures_of_dependency(dependency).count_attempt(
                number, category, duration_ms, counted=counted
            )
        self._note_change()

    def ended(
        self,
        dependency: str,
        status: str,
        seconds: float,
        priority: Priority | None = None,
        debounce: DebounceOutcome | None = None,
    ) -> None:
        """Count an operation that ended."""
        with self._lock:
            figures = self._figures_of_dependency(dependency)
            figures.count_end(status, seconds, priority)
            if debounce is not None:
                figures.count_debounce(debounce)
        self._note_change()

    def waited(
        self,
        dependency: str,
        kind: str,
        seconds: float,
        late_seconds: float | None,
        priority: Priority | None = None,
    ) -> None:
        """Count a wait that is over, and how late unless something ended it before it was due."""
        with self._lock:
            figures = self._figures_of_dependency(dependency)
            figures.count_wait(kind, seconds, priority)
            if late_seconds is not None:
                figures.count_late(late_seconds)
        self._note_change()

    def opened(self, dependency: str) -> None:
        """Count the opening of a circuit."""
        with self._lock:
            self._figures_of_dependency(dependency).openings += 1
        self._note_change()

    def limited(self, dependency: str, concurrency: int, per_second: float) -> None:
        """Note the limits of the moment; 0 is no limit."""
        with self._lock:
            figures = self._figures_of_dependency(dependency)
            for kind, value in ((LimitKind.CONCURRENCY, concurrency), (LimitKind.RATE, per_second)):
                if value > 0:
                    figures.read_limit(kind, value)
        self._note_change()

    def unsaved(self) -> list[Unsaved]:
        """Return every minute with unwritten changes, the oldest first, and forget those that are too old."""
        with self._lock:
            self._is_changed = False
            present = self._present_minute()
            late = [key for key in self._slots if key[0] < present - KEPT_MINUTES]
            lost = sum(self._slots.pop(key).figures.attempts for key in late)
            found = [
                Unsaved(minute, dependency, slot.version, json.dumps(slot.figures.to_json()))
                for (minute, dependency), slot in sorted(self._slots.items())
                if slot.version != slot.saved
            ]
        if late:
            _log.warning(
                "%s of metrics with %s could not be written and are lost",
                counted(len(late), "minute"),
                counted(lost, "attempt"),
            )
        return found

    def saved(self, written: Iterable[Unsaved]) -> None:
        """Note what was written; minutes that are over and complete are forgotten."""
        with self._lock:
            present = self._present_minute()
            for one in written:
                key = (one.minute, one.dependency)
                slot = self._slots.get(key)
                if slot is None:
                    continue
                slot.saved = max(slot.saved, one.version)
                if one.minute < present and slot.saved == slot.version:
                    del self._slots[key]

    def clear(self) -> None:
        """Forget everything. For tests."""
        with self._lock:
            self._slots.clear()
            self._is_changed = False

    def _figures_of_dependency(self, dependency: str) -> Figures:
        # The caller holds the lock.
        key = (self._present_minute(), dependency)
        slot = self._slots.get(key)
        if slot is None:
            if len(self._slots) >= MOST_SLOTS:
                del self._slots[min(self._slots)]
            slot = self._slots[key] = _Slot()
        slot.version += 1
        return slot.figures

    def _present_minute(self) -> int:
        return int(clock.now().timestamp()) // 60

    def _note_change(self) -> None:
        if not self._is_changed:
            self._is_changed = True
            if self._on_change is not None:
                self._on_change()


MINUTES: Final = Minutes()
"""The minutes of this process."""


def record_facts() -> None:
    """Subscribe to what is counted per minute."""
    subscribe(Submitted, _count_submission)
    subscribe(AttemptEnded, _count_attempt)
    subscribe(DeliveryEnded, _count_attempt)
    subscribe(WaitEnded, _count_wait)
    subscribe(OperationEnded, _count_end)
    subscribe(CircuitChanged, _count_opening)
    subscribe(LimitsRead, _note_limits)


def _count_submission(fact: Submitted) -> None:
    if fact.outcome is SubmissionOutcome.STARTED:
        MINUTES.started(fact.operation.dependency, fact.operation.priority)


def _count_attempt(fact: AttemptEnded | DeliveryEnded) -> None:
    outcome = fact.outcome
    category = None if outcome.category is None else outcome.category.value
    MINUTES.attempted(
        dependency_label(fact.operation.dependency),
        outcome.number,
        category,
        outcome.duration_ms,
        # A success is counted whatever its attempt says of itself.
        counted=outcome.counted or category is None,
    )


def _count_wait(fact: WaitEnded) -> None:
    operation = fact.operation
    MINUTES.waited(operation.dependency, fact.kind, fact.seconds, fact.late_seconds, operation.priority)


def _count_end(fact: OperationEnded) -> None:
    document = fact.document
    MINUTES.ended(
        document["dependency"],
        document["status"],
        lasted_seconds(document),
        None if document.get("priority") is None else Priority(document["priority"]),
        debounce_outcome(document),
    )


def _count_opening(fact: CircuitChanged) -> None:
    # A probe that fails opens it again: the outage was counted.
    if fact.before in FREE and fact.after not in FREE:
        MINUTES.opened(fact.dependency)


def _note_limits(fact: LimitsRead) -> None:
    MINUTES.limited(fact.dependency, fact.concurrency, fact.per_second)
