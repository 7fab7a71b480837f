"""Every timer of the hub on one heap, of which only the nearest part is in memory."""

import heapq
from collections.abc import Callable
from typing import Final

NEVER: Final = 2**63 - 1  # the largest instant that SQLite can hold

type Key = str | int
"""What to wake: an instance, an entity, or (an integer) an activity."""


class Timers:
    """Knows what is due next.

    The store holds all timers; the heap holds those up to a horizon and is refilled from the store when it
    runs empty. So a million timers cost no more memory than the nearest few thousand. A finished instance's
    timers are not searched for: they wake nobody when their time comes.

    Args:
        load: Returns the next timers after an instant: at least `limit` if there are as many.
        limit: How many to load at a time.
    """

    def __init__(self, load: Callable[[int, int], list[tuple[int, str]]], limit: int = 5_000) -> None:
        self._load = load
        self._limit = limit
        self._stored: list[tuple[int, str]] = []
        self._horizon_us = -1
        self._trim_above = 4 * limit
        self._retries: list[tuple[int, Key]] = []

    def refill(self) -> None:
        """Forget what was loaded and begin from the store."""
        self._stored, self._horizon_us = [], -1
        self._load_more()

    def add(self, due_us: int, target: str) -> bool:
        """Note a timer that is in the store; return whether it is now the next one due."""
        if due_us > self._horizon_us:
            return False
        heapq.heappush(self._stored, (due_us, target))
        self._trim()
        return self._stored[0][0] == due_us

    def add_retry(self, due_us: int, key: Key) -> None:
        """Note that a work item that failed is to be tried again; a restart would do so anyway."""
        heapq.heappush(self._retries, (due_us, key))

    def next_due_us(self) -> int | None:
        """When the next timer is due; None when there is none."""
        if not self._stored:
            self._load_more()
        heads = [heap[0][0] for heap in (self._stored, self._retries) if heap]
        return min(heads, default=None)

    def pop_due(self, now_us: int) -> list[Key]:
        """Remove what is due and return whom to wake, earliest first."""
        due: list[Key] = []
        while (next_us := self.next_due_us()) is not None and next_us <= now_us:
            if self._retries and self._retries[0][0] == next_us:
                due.append(heapq.heappop(self._retries)[1])
            else:
                due.append(heapq.heappop(self._stored)[1])
        return due

    def _load_more(self) -> None:
        if self._horizon_us == NEVER:
            return
        rows = self._load(self._horizon_us, self._limit)
        self._horizon_us = max(row[0] for row in rows) if len(rows) > self._limit else NEVER
        self._stored = rows
        heapq.heapify(self._stored)

    def _trim(self) -> None:
        """Leave the far part to the store once too many have been added.

        Timers of one instant stay together, so it may be that little or nothing can go: the next try waits
        until there are twice as many, or each timer added would sort all the others.
        """
        if len(self._stored) <= self._trim_above:
            return
        self._stored.sort()
        self._horizon_us = self._stored[self._limit][0]
        self._stored = [entry for entry in self._stored if entry[0] <= self._horizon_us]
        self._trim_above = max(4 * self._limit, 2 * len(self._stored))
