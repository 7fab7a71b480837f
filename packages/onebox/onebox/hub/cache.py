"""Keeps the histories of instances that take turns, so that a turn need not read its own."""

from collections import OrderedDict
from dataclasses import dataclass

from onebox.hub.model import Head

_OVERHEAD_BYTES = 600  # of one entry, beside its history


@dataclass(slots=True)
class Live:
    """An instance with its history as stored: framed events, one chunk per turn."""

    head: Head
    chunks: list[bytes]
    size: int


class HistoryCache:
    """The instances used last, up to a number of bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._entries: OrderedDict[str, Live] = OrderedDict()
        self._bytes = 0

    def get(self, instance_id: str) -> Live | None:
        """Return an instance, now the one used last; None when it is not here."""
        live = self._entries.get(instance_id)
        if live is not None:
            self._entries.move_to_end(instance_id)
        return live

    def put(self, live: Live) -> None:
        """Keep an instance; those unused for longest give way."""
        self.drop(live.head.id)
        live.size = _OVERHEAD_BYTES + sum(map(len, live.chunks))
        self._entries[live.head.id] = live
        self._bytes += live.size
        self._evict()

    def advance(self, live: Live, head: Head, chunk: bytes) -> None:
        """Note a committed turn of an instance."""
        live.head = head
        live.chunks.append(chunk)
        if self._entries.get(head.id) is live:
            live.size += len(chunk)
            self._bytes += len(chunk)
            self._evict()

    def clear(self) -> None:
        """Forget all instances."""
        self._entries.clear()
        self._bytes = 0

    def _evict(self) -> None:
        while self._bytes > self._limit_bytes:
            self._bytes -= self._entries.popitem(last=False)[1].size

    def drop(self, instance_id: str) -> None:
        """Forget an instance."""
        gone = self._entries.pop(instance_id, None)
        if gone is not None:
            self._bytes -= gone.size
