"""What the dispatcher reads: committed state, through a connection that cannot write."""

import sqlite3
from typing import Any

from onebox.hub.cache import Live
from onebox.hub.model import Entity, Kind, Lane, Message, Task
from onebox.hub.store.instances import head_from
from onebox.hub.store.sql import QUERIES
from onebox.hub.store.transaction import is_entity

_NO_LIMIT = -1


class Reader:
    """Reads single rows and inboxes."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def rows(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run one named query."""
        return self._db.execute(QUERIES[name], parameters).fetchall()

    def live(self, instance_id: str) -> Live | None:
        """Return an instance with its history; None when there is none."""
        found = self.rows("instance.head", instance_id)
        if not found:
            return None
        chunks = [row[0] for row in self.rows("history.read", instance_id)]
        return Live(head_from(instance_id, found[0]), chunks, 0)

    def inbox(self, instance_id: str, now_us: int) -> list[Message]:
        """Return what an instance may see, in order of arrival.

        All of it: the message that counts (a resume, a rewind) may stand behind any number of others.
        """
        return self._visible(instance_id, now_us, _NO_LIMIT)

    def entity(self, entity_id: str) -> Entity:
        """Return an entity; one without a row is one without a state."""
        found = self.rows("entity.get", entity_id)
        return Entity(*found[0]) if found else Entity(entity_id)

    def operations(self, entity: Entity, now_us: int, limit: int) -> list[Message]:
        """Return what an entity may see, in order of arrival.

        All of it while the entity is locked: the owner's call may stand behind any number of others.
        """
        return self._visible(entity.id, now_us, limit if entity.lock_owner is None else _NO_LIMIT)

    def _visible(self, target: str, now_us: int, limit: int) -> list[Message]:
        return [
            Message(seq, target, Kind(kind), due_us, events, execution_id)
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

    def last_seq(self) -> int:
        """Return the highest number in use."""
        return max(int(self.rows(name)[0][0]) for name in ("message.last_seq", "activity.last_seq"))

    def close(self) -> None:
        """Close the connection."""
        self._db.close()
