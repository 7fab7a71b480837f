"""How much the task hub does at once."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HubSettings:
    """Limits of one hub.

    Attributes:
        max_turns: Orchestrator turns in flight, from taken to committed (at least 1).
        max_batches: Entity batches in flight, likewise (at least 1).
        max_activities: Activities in flight, likewise (at least 1).
        max_batch_operations: Operations handed to an entity in one batch (at least 1).
        cache_bytes: Serialised history kept in memory for live instances (0 keeps none).
        default_version: Of instances started without a version, children too; None gives none.
        stop_seconds: How long `stop` lets running invocations finish before it gives them back.
    """

    max_turns: int = 64
    max_batches: int = 64
    max_activities: int = 64
    max_batch_operations: int = 256
    cache_bytes: int = 64 * 1024 * 1024
    default_version: str | None = None
    stop_seconds: float = 5.0
