"""The handlers and dependencies that waiting operations need and this app does not have.

`watch` sees those operations in the pages of the task hub that it reads to find failures, without a further
request. A process remembers what it has seen: one look may not reach the end of a large hub, and the next
ones go on.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.base.documents import json_object
from durable_retry.base.json_forms import from_rfc3339
from durable_retry.hub.task_hub import TaskHub
from durable_retry.runtime.concurrency import LoopOwned
from durable_retry.settings.configuration import find_dependency, registered_handlers

_FORGOTTEN_AFTER: Final = timedelta(minutes=5)
"""What was not seen for so long is not needed any more. Looks are a minute apart."""

# As `attempt.without_handler` and `without_dependency` say it; what waits for all else is not parsed.
_REASON: Final = re.compile(r"((?:handler|dependency) \S+) is not (?:registered|configured) here any more")


@dataclass(slots=True)
class _Seen:
    """What the looks of a process have seen.

    Attributes:
        needed: By what is needed, such as `handler ship-order`: since when, and when that was seen last.
        looked_at: When the latest look ended.
    """

    needed: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)
    looked_at: datetime | None = None


_seen: Final = LoopOwned[defaultdict[TaskHub, _Seen]](lambda: defaultdict(_Seen))


@dataclass(slots=True)
class LackingLook:
    """One look at what has not ended."""

    hub: TaskHub
    now: datetime

    async def move_on(self, _name: str, state: pb.OrchestrationState) -> None:
        """Note what an unfinished operation waits for in vain; it stays as it is."""
        text = state.customStatus.value
        waits = (json_object(text) or {}).get("waits") if _REASON.search(text) else None
        if not waits:
            return
        for needed in _REASON.findall(" ".join(waits[-1]["delay_reasons"])):
            known, since = _seen.get()[self.hub].needed, from_rfc3339(waits[-1]["began_at"])
            first, _ = known.get(needed, (since, self.now))
            known[needed] = min(first, since), self.now

    async def end(self) -> None:
        """Forget what nobody was seen to need for a while."""
        seen = _seen.get()[self.hub]
        seen.looked_at = self.now
        seen.needed = {
            needed: (since, at)
            for needed, (since, at) in seen.needed.items()
            if self.now - at < _FORGOTTEN_AFTER
        }


def lacking_since(hub: TaskHub, now: datetime) -> dict[str, datetime] | None:
    """Return since when an operation waits for what this app does not have, by what that is.

    Returns:
        None where the latest look of this process is too old: another process may have looked since.
    """
    seen = _seen.get()[hub]
    if seen.looked_at is None or now - seen.looked_at > _FORGOTTEN_AFTER:
        return None
    needed = sorted(seen.needed.items())
    return {each: since for each, (since, _) in needed if not _is_here(*each.split())}


def _is_here(kind: str, name: str) -> bool:
    # What waits was told so by other code, and asks again minutes later.
    return name in registered_handlers() if kind == "handler" else find_dependency(name) is not None
