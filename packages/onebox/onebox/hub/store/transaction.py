"""One transaction in the making: its statements, and what must happen once it is on disk."""

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from onebox.hub.model import Effects, Kind, Lane
from onebox.hub.store.sql import QUERIES


@dataclass(slots=True)
class Transaction:
    """Runs named statements and gathers effects.

    Attributes:
        now_us: When the transaction is written; messages arrive then.
        next_seq: Numbers messages and activities.
    """

    db: sqlite3.Connection
    now_us: int
    next_seq: Callable[[], int]
    effects: Effects = field(default_factory=Effects)

    def run(self, name: str, *parameters: Any) -> sqlite3.Cursor:
        """Run one named statement."""
        return self.db.execute(QUERIES[name], parameters)

    def run_many(self, name: str, rows: Iterable[tuple[Any, ...]]) -> int:
        """Run one named statement for each row; return how many rows changed."""
        return self.db.executemany(QUERIES[name], rows).rowcount

    def post(
        self,
        target: str,
        kind: Kind,
        events: bytes,
        *,
        execution_id: str | None = None,
        due_us: int | None = None,
    ) -> bool:
        """Put a message into an inbox.

        Args:
            target: Instance id, or entity id.
            kind: What it asks for.
            events: Framed history events.
            execution_id: The execution that is meant; None means whichever runs.
            due_us: Not visible before; None, or an instant that is past, means now.

        Returns:
            Whether the target takes it: an instance may be gone, finished, or in another execution.
        """
        delayed = due_us is not None and due_us > self.now_us
        at_us = due_us if due_us is not None and delayed else self.now_us
        to = "message.post_to_entity" if is_entity(target) else "message.post_to_instance"
        row = (self.next_seq(), target, execution_id, kind.value, int(delayed), at_us, events)
        if self.run(to, *row).rowcount != 1:
            return False
        if delayed:
            self.effects.timers.append((at_us, target))
        else:
            self.effects.wake.append((target, Lane.NEW if kind is Kind.START else Lane.GOING))
        return True


def is_entity(target: str) -> bool:
    """Whether a target is an entity's id, not an instance's."""
    return target.startswith("@")
