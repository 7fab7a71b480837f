"""What people see of the limits of a dependency, and of their use."""

from collections import Counter
from datetime import datetime
from typing import Annotated, Final

from pydantic import Field

from durable_retry.base.answers import is_empty
from durable_retry.base.names import Priority
from durable_retry.features.limits.rules.fair import KEPT_PLACES
from durable_retry.features.limits.rules.settings import LimitSettings, LimitsSummary, limits_summary
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.rules.circuit.messages import CircuitDocument

SHOWN_KEYS: Final = 10


class LimitsDocument(LimitsSummary):
    """The limits of a dependency at this moment, and their use."""

    lent: int = Field(description="Attempts under way beyond the workers' shares.")
    waiting: int = Field(description=f"Attempts that wait, up to {KEPT_PLACES}: those that go first.")
    waiting_by_priority: dict[Priority, int] = Field(description="The same by priority.")
    waiting_by_key: Annotated[
        dict[str, int],
        Field(
            default_factory=dict,
            exclude_if=is_empty,
            description="How many of them have a limit key: the "
            f"{SHOWN_KEYS} keys with most. Left out where none has one.",
        ),
    ]


class ListedLimitedCircuit(CircuitDocument):
    """The shared breaker of one dependency, and its limits without their use."""

    limits: LimitsSummary


class LimitedCircuit(CircuitDocument):
    """The shared breaker of one dependency, and its limits."""

    limits: LimitsDocument


def limits_view(settings: LimitSettings, limiter: Limiter, at: datetime) -> LimitsDocument:
    """Return what people see of the limits of this moment, by the limiter's clock."""
    limiter, now = limiter.at(at)
    places = limiter.live_places(now)
    waiting = Counter(place.priority or Priority.NORMAL for place in places)
    keys = Counter(place.limit_key for place in places if place.limit_key is not None)
    return LimitsDocument(
        **dict(limits_summary(settings)),
        lent=len(limiter.leases),
        waiting=waiting.total(),
        waiting_by_priority={priority: waiting[priority] for priority in Priority if priority in waiting},
        waiting_by_key=dict(keys.most_common(SHOWN_KEYS)),
    )
