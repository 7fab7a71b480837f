"""Adaptive concurrency: the limit of attempts at once falls when a dependency is overloaded, and rises again.

    worker: Observed ──report──> the circuit's entity: Adaptive ──snapshot──> the workers' limit

Additive increase, multiplicative decrease, as TCP does it: an overload lowers the limit by three tenths, once
for all attempts that were under way together; then each round of good answers raises it by one, as long as it
holds attempts up. It stays between `min_concurrency` and `max_concurrency`, where it begins.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from math import sqrt
from typing import Final

from durable_retry.engine.base.json_forms import JsonShape, MsInstant

LOWERED_TO: Final = 0.7
"""An overload leaves this part of the limit."""


@dataclass(frozen=True, slots=True)
class AdaptiveSettings(JsonShape):
    """Bounds of an adaptive limit."""

    min_concurrency: int  # at least 1
    max_concurrency: int  # at least 2
    latency_seconds: float = 0.0  # an attempt that takes longer shows overload; 0 means that none does


@dataclass(frozen=True, slots=True)
class Observed(JsonShape):
    """What a worker's attempts showed of a dependency's load since its last report."""

    good: int = 0  # answers without overload
    overloaded: int = 0  # throttled, failed or slow attempts
    overloaded_began_at: MsInstant | None = None  # when the latest of these began; None without one
    held_back: bool = False  # whether the lowered limit held attempts up

    def plus(self, began_at: datetime, *, is_overload: bool) -> "Observed":
        """Return this with one more attempt."""
        if not is_overload:
            return replace(self, good=self.good + 1)
        latest = max(began_at, self.overloaded_began_at or began_at)
        return replace(self, overloaded=self.overloaded + 1, overloaded_began_at=latest)


NOTHING_OBSERVED: Final = Observed()


@dataclass(frozen=True, slots=True)
class Adaptive(JsonShape):
    """A lowered limit."""

    limit: float  # attempts at once; its whole part counts
    # When an overload last lowered it. Attempts that began before show nothing new.
    lowered_at: MsInstant


def adapted(
    current: Adaptive | None, observed: Observed, now: datetime, settings: AdaptiveSettings | None
) -> Adaptive | None:
    """Return the limit after a report of one worker, its instants by the clock of `now`.

    None stands for `max_concurrency`, before and after.
    """
    if settings is None:
        return None
    limit = float(settings.max_concurrency) if current is None else current.limit
    limit = min(max(limit, settings.min_concurrency), settings.max_concurrency)
    if (began_at := observed.overloaded_began_at) is not None:
        if current is None or began_at > current.lowered_at:
            return Adaptive(max(float(settings.min_concurrency), round(limit * LOWERED_TO, 3)), now)
    elif observed.held_back:
        # One more per round of `limit` good answers: d(limit)/d(good) = 1 / limit.
        limit = round(sqrt(limit * limit + 2 * observed.good), 3)
    if current is None or limit >= settings.max_concurrency:
        return None
    return replace(current, limit=limit)
