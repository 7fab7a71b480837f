"""What is read of the store, through connections that cannot write.

The dispatcher reads single rows and inboxes (`Reader`) and keeps the histories of instances that take turns
(`HistoryCache`). What clients read is in `listing.py`.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from onebox.hub.archive import unpacked_state
from onebox.hub.database import QUERIES, is_entity
from onebox.hub.events import unpacked
from onebox.hub.instances import head_from
from onebox.hub.model import Entity, Head, Kind, Lane, Message, Task

_NO_LIMIT = -1
_OVERHEAD_BYTES = 600  # of one entry, beside its history
_KINDS: Final = {kind.value: kind for kind in Kind}  # quicker than to call the enumeration


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
        # The input is held twice: the head has it beside the history's first event.
        live.size = _OVERHEAD_BYTES + len(live.head.input or "") + sum(map(len, live.chunks))
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


class Reader:
    """Reads single rows and inboxes."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def rows(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run one named query."""
        return self._db.execute(QUERIES[name], parameters).fetchall()

    def each(self, name: str, *parameters: Any) -> Iterator[tuple[Any, ...]]:
        """Run one named query and read its rows one by one."""
        return iter(self._db.execute(QUERIES[name], parameters))

    def live(self, instance_id: str) -> Live | None:
        """Return an instance with its history; None when there is none."""
        found = self.rows("instance.head", instance_id)
        if not found:
            return None
        head = head_from(instance_id, found[0])
        rows = self.rows("history.read", instance_id) if head.turn else ()
        return Live(head, [unpacked(row[0]) for row in rows], 0)

    def inbox(self, instance_id: str, now_us: int) -> list[Message]:
        """Return what an instance may see, in order of arrival.

        All of it: the message that counts (a resume, a rewind) may stand behind any number of others.
        """
        return self._visible(instance_id, now_us, _NO_LIMIT)

    def has_ended(self, instance_id: str) -> bool:
        """Return whether an instance has ended, or is gone."""
        return not self.rows("instance.lives", instance_id)

    def entity(self, entity_id: str) -> Entity:
        """Return an entity; one without a row is one without a state."""
        found = self.rows("entity.get", entity_id)
        if not found:
            return Entity(entity_id)
        _, state, *rest = found[0]
        return Entity(entity_id, unpacked_state(state), *rest)

    def operations(self, entity: Entity, now_us: int, limit: int) -> list[Message]:
        """Return what an entity may see, in order of arrival.

        All of it while the entity is locked: the owner's call may stand behind any number of others.
        """
        return self._visible(entity.id, now_us, limit if entity.lock_owner is None else _NO_LIMIT)

    def _visible(self, target: str, now_us: int, limit: int) -> list[Message]:
        return [
            Message(seq, target, _KINDS[kind], due_us, events, execution_id)
            for seq, kind, due_us, events, execution_id in self.rows("message.visible", target, now_us, limit)
        ]

    def task(self, seq: int) -> Task | None:
        """Return an activity; None when its result is stored."""
        found = self.rows("activity.get", seq)
        if not found:
            return None
        instance_id, execution_id, task_id, name, input_, lane = found[0]
        return Task(seq, instance_id, execution_id, task_id, name, input_, Lane(lane))

    def timers(self, after_us: int, limit: int) -> list[tuple[int, str]]:
        """Return the next timers after an instant; more than `limit` of them means that there may be more."""
        return [(due_us, target) for due_us, target in self.rows("message.timers", after_us, limit)]

    def ready_targets(self, now_us: int) -> list[tuple[str, Lane]]:
        """Return every instance and entity with a visible message."""
        return [
            (target, Lane.NEW if is_new and not is_entity(target) else Lane.GOING)
            for target, is_new in self.rows("message.ready", now_us)
        ]

    def ready_tasks(self) -> list[tuple[int, Lane]]:
        """Return every activity without a stored result."""
        return [(seq, Lane(lane)) for seq, lane in self.rows("activity.ready")]

    def newest_us(self) -> int:
        """Return the instant of the newest commit that an instance shows; 0 when there is none."""
        return int(self.rows("instance.newest")[0][0])

    def last_seq(self) -> int:
        """Return the highest number in use."""
        return max(int(self.rows(name)[0][0]) for name in ("message.last_seq", "activity.last_seq"))

    def close(self) -> None:
        """Close the connection."""
        self._db.close()
