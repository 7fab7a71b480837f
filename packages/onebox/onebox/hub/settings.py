"""How much the task hub does at once."""

from dataclasses import dataclass, field

from onebox.hub.model import TERMINAL, Status
from onebox.hub.versioning import Versioning


@dataclass(frozen=True)
class HubSettings:
    """Limits of one hub.

    Attributes:
        max_turns: Orchestrator turns in flight, from taken to committed (at least 1).
        max_batches: Entity batches in flight, likewise (at least 1).
        max_activities: Activities in flight, likewise (at least 1).
        max_batch_operations: Operations handed to an entity in one batch (at least 1).
        cache_bytes: Serialised history kept in memory for live instances (0 keeps none).
        versioning: The app's version, and what it does with instances of another.
        replaceable: Statuses in which an instance gives way to a start under its id that says nothing of it.
        stop_seconds: How long `stop` lets running invocations finish before it gives them back.
    """

    max_turns: int = 64
    max_batches: int = 64
    max_activities: int = 64
    max_batch_operations: int = 256
    cache_bytes: int = 64 * 1024 * 1024
    versioning: Versioning = field(default_factory=Versioning)
    replaceable: frozenset[Status] = TERMINAL
    stop_seconds: float = 5.0
