"""The operations that their policies hold, for alerts.

`watch` sees them in the pages of the task hub that it reads to find failures, without a further request. A
process remembers what it has seen: one look may not reach the end of a large hub, and the next ones go on.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Final

from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.base.documents import json_object
from durable_retry.features.holding.rules import BY_POLICY, held_since
from durable_retry.hub.task_hub import TaskHub
from durable_retry.runtime.concurrency import LoopOwned

_FORGOTTEN_AFTER: Final = timedelta(minutes=5)
"""An operation that was not seen for so long has ended. Looks are a minute apart."""


@dataclass(slots=True)
class HeldOperations:
    """What the looks of a process have seen.

    Attributes:
        since: By the id of an operation, since when it is held, and when it was seen last.
        looked_at: When the latest look ended.
    """

    since: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)
    looked_at: datetime | None = None


_seen: Final = LoopOwned[dict[TaskHub, HeldOperations]](dict)


@dataclass(slots=True)
class HeldLook:
    """One look at what has not ended."""

    hub: TaskHub
    now: datetime

    async def move_on(self, _name: str, state: pb.OrchestrationState) -> None:
        """Note whether its policy holds an unfinished operation, which stays as it is."""
        status = state.customStatus.value
        since = held_since(json_object(status) or {}) if BY_POLICY in status else None
        known = _seen_in(self.hub).since
        if since is None:
            known.pop(state.instanceId, None)
        else:
            known[state.instanceId] = since, self.now

    async def end(self) -> None:
        """Forget what was not seen for a while: it has ended."""
        seen = _seen_in(self.hub)
        seen.looked_at = self.now
        seen.since = {
            name: (since, at) for name, (since, at) in seen.since.items() if self.now - at < _FORGOTTEN_AFTER
        }


def _seen_in(hub: TaskHub) -> HeldOperations:
    return _seen.get().setdefault(hub, HeldOperations())


def held_operations(hub: TaskHub, now: datetime) -> dict[str, datetime] | None:
    """Return since when each operation is held, the oldest first; None where the latest look is too old."""
    seen = _seen_in(hub)
    if seen.looked_at is None or now - seen.looked_at > _FORGOTTEN_AFTER:
        return None
    return dict(sorted(((name, since) for name, (since, _) in seen.since.items()), key=itemgetter(1)))
