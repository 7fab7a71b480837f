"""What happens to each dependency, counted per minute in this process until `stores.metrics` has written it.

Counting costs a few microseconds and never waits for storage. It may be called from any thread.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from durable_retry import clock
from durable_retry.engine.metrics import Figures

MOST_SLOTS: Final = 2_000
"""Minutes of dependencies that are kept while storage is away; the oldest go first."""
KEPT_MINUTES: Final = 60
"""An older minute is not written any more: `services.metrics` folds its hour soon after this time."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Slot:
    """One dependency's minute.

    Attributes:
        figures: What was counted.
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
        dependency: Its name.
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

    def started(self, dependency: str) -> None:
        """Count an operation that was accepted."""
        with self._lock:
            self._of(dependency).started += 1
        self._changed()

    def attempted(
        self, dependency: str, number: int, category: str | None, duration_ms: float, *, counted: bool
    ) -> None:
        """Count an attempt, see `Figures.count_attempt`."""
        with self._lock:
            self._of(dependency).count_attempt(number, category, duration_ms, counted=counted)
        self._changed()

    def ended(self, dependency: str, status: str, seconds: float) -> None:
        """Count an operation that ended."""
        with self._lock:
            self._of(dependency).count_end(status, seconds)
        self._changed()

    def waited(self, dependency: str, kind: str, seconds: float) -> None:
        """Count a wait that is over."""
        with self._lock:
            self._of(dependency).count_wait(kind, seconds)
        self._changed()

    def opened(self, dependency: str) -> None:
        """Count the opening of a circuit."""
        with self._lock:
            self._of(dependency).openings += 1
        self._changed()

    def unsaved(self) -> list[Unsaved]:
        """Return every minute with unwritten changes, the oldest first, and forget those that are too old."""
        with self._lock:
            self._is_changed = False
            present = self._present()
            late = [key for key in self._slots if key[0] < present - KEPT_MINUTES]
            lost = sum(self._slots.pop(key).figures.attempts for key in late)
            found = [
                Unsaved(minute, dependency, slot.version, json.dumps(slot.figures.to_json()))
                for (minute, dependency), slot in sorted(self._slots.items())
                if slot.version != slot.saved
            ]
        if late:
            _log.warning(
                "%d minutes of metrics with %d attempts could not be written and are lost", len(late), lost
            )
        return found

    def saved(self, written: Iterable[Unsaved]) -> None:
        """Note what was written; minutes that are over and complete are forgotten."""
        with self._lock:
            present = self._present()
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

    def _of(self, dependency: str) -> Figures:
        """Return the present minute's figures for a change. The caller holds the lock."""
        key = (self._present(), dependency)
        slot = self._slots.get(key)
        if slot is None:
            if len(self._slots) >= MOST_SLOTS:
                del self._slots[min(self._slots)]
            slot = self._slots[key] = _Slot()
        slot.version += 1
        return slot.figures

    def _present(self) -> int:
        return int(clock.now().timestamp()) // 60

    def _changed(self) -> None:
        if not self._is_changed:
            self._is_changed = True
            if self._on_change is not None:
                self._on_change()


MINUTES: Final = Minutes()
"""Of this process."""
