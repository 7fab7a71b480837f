"""Those who wait for an instance to reach a status."""

import asyncio
from collections import defaultdict


class Waiters:
    """Wakes whoever watches an instance when its status changes."""

    def __init__(self) -> None:
        self._events: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def watch(self, instance_id: str) -> asyncio.Event:
        """Return an event that is set at each change, until `unwatch`."""
        changed = asyncio.Event()
        self._events[instance_id].add(changed)
        return changed

    def unwatch(self, instance_id: str, changed: asyncio.Event) -> None:
        """Stop watching."""
        self._events[instance_id].discard(changed)
        if not self._events[instance_id]:
            del self._events[instance_id]

    def notify(self, instance_id: str) -> None:
        """Say that an instance's status has changed."""
        for changed in self._events.get(instance_id, ()):
            changed.set()
