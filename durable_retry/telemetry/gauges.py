"""Latest values of the gauges, which a timer reads instead of counting events.

The timer `watch` runs on one instance of the fleet at a time. An instance shows its values until the next run
is surely over and then none, so that two instances do not show different values.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from durable_retry import clock

SHOWN_SECONDS: Final = 150.0
"""`watch` runs every minute; one run may fail."""

type Value = tuple[float, Mapping[str, Any]]
"""A value and its labels."""

_latest: dict[str, tuple[float, Sequence[Value]]] = {}


def show(values: Mapping[str, Sequence[Value]]) -> None:
    """Replace the values of metrics, by metric name."""
    now_seconds = clock.monotonic_seconds()
    _latest.update({name: (now_seconds, each) for name, each in values.items()})


def latest(name: str) -> Sequence[Value]:
    """Return the values of a metric; empty when they are too old or another instance reads them."""
    read_seconds, values = _latest.get(name, (0.0, ()))
    return values if clock.monotonic_seconds() - read_seconds < SHOWN_SECONDS else ()
