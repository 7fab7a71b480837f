"""What people did about a root cause: who looks into it, whether it is resolved, and whether it came back.

new ──acknowledge──> acknowledged ──resolve──> resolved ──one fails again──> new, and it came back
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Self

from durable_retry.engine.base.json_forms import JsonShape
from durable_retry.engine.dead_letters.record import MAX_NOTES, FullError, Note


class CauseStatus(StrEnum):
    """Where a root cause stands with people."""

    NEW = "new"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause(JsonShape):
    """What people did about a root cause; nothing yet by default.

    Attributes:
        group: The group of its dead letters.
        notes: The oldest first.
    """

    group: str
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    resolved_at: datetime | None = None
    resolved_by: str | None = None
    notes: tuple[Note, ...] = ()

    def came_back(self, last_seen_at: datetime) -> bool:
        """Return whether a dead letter was made after somebody had resolved it."""
        return self.resolved_at is not None and last_seen_at > self.resolved_at

    def status(self, last_seen_at: datetime) -> CauseStatus:
        """Return where it stands, by its latest dead letter: one that came back is new again."""
        acknowledged, resolved = self.acknowledged_at, self.resolved_at
        if acknowledged is not None and (resolved is None or acknowledged > resolved):
            return CauseStatus.ACKNOWLEDGED
        is_over = resolved is not None and not self.came_back(last_seen_at)
        return CauseStatus.RESOLVED if is_over else CauseStatus.NEW

    def acknowledged(self, now: datetime, by: str | None) -> Self:
        """Return it as somebody's work from now on."""
        return replace(self, acknowledged_at=now, acknowledged_by=by)

    def resolved(self, now: datetime, by: str | None) -> Self:
        """Return it as mended: a dead letter that is made later says that it came back."""
        return replace(self, resolved_at=now, resolved_by=by)

    def noted(self, text: str, now: datetime, by: str | None) -> Self:
        """Return it with one more note; FullError where it has as many as it can hold."""
        if len(self.notes) >= MAX_NOTES:
            raise FullError(f"it has {MAX_NOTES} notes already")
        return replace(self, notes=(*self.notes, Note(text=text, at=now, by=by)))
