"""How long what has ended is kept: for ever, where the app lacks the feature that removes it."""

from dataclasses import dataclass
from datetime import timedelta
from functools import cache

from durable_retry.plugins import hook
from durable_retry.runtime.deferred import imported


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long each kind is kept; None for ever."""

    archived_for: timedelta | None = None  # archived dead letters
    history_for: timedelta | None = None  # finished orchestrations and batches, from their start
    sent_for: timedelta | None = None  # sent events, from their operation's success


@cache
def retention() -> Retention:
    """Return how long this app keeps each kind, read once."""
    reference = hook("kept_for")
    kept: Retention = imported(reference)() if reference else Retention()
    return kept
