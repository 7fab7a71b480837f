"""Who goes first where operations wait: for a slot, for the retry budget, for their release after an outage.

The rule for a slot is that of time-dependent priorities (Kleinrock 1964): whoever has waited for the longest
goes first, where a minute counts fourfold for `high` and a quarter for `low`. So `low` is never starved: what
has waited for four times as long as a `normal` one, or sixteen times as long as a `high` one, goes before it,
however many come.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from math import sqrt
from typing import Final

from durable_retry.engine.base.names import Priority

WEIGHTS: Final[Mapping[Priority, float]] = {Priority.HIGH: 4.0, Priority.NORMAL: 1.0, Priority.LOW: 0.25}
"""What a second of waiting counts."""


def counted_wait(due_at: datetime, priority: Priority | None, now: datetime) -> timedelta:
    """Return for how long something has waited, as it counts; None is `normal`."""
    return max(now - due_at, timedelta(0)) * WEIGHTS[priority or Priority.NORMAL]


BUDGET_PATIENCE_SECONDS: Final = 60.0
"""For so long a retry with the priority `low` leaves the retry budget to others; then it is as `normal`."""


def released_at_fraction(fraction: float, priority: Priority | None) -> float:
    """Return where in a release somebody goes, in times of its length, for a fraction drawn for it.

    `normal` is spread evenly. `high` has the earlier of two draws: half of them go in the first 30 %. `low`
    goes after the others, within as long again. So `low` never adds to the rate at which the others come.
    """
    if priority is Priority.HIGH:
        return 1.0 - sqrt(1.0 - fraction)
    return 1.0 + fraction if priority is Priority.LOW else fraction
