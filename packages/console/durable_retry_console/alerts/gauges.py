"""The gauges that show the health metrics, as a table, and their latest values."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from durable_retry.runtime import clock
from durable_retry.telemetry.metrics import Metric, MetricKind, meter
from durable_retry.telemetry.spans import CIRCUIT_STATE, DEPENDENCY


def _gauge(name: str, unit: str, description: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.GAUGE, unit, labels, description)


CIRCUIT_STATUS: Final = _gauge(
    "durable_retry.circuit.status",
    "1",
    "1 for the state that a circuit is in, 0 for the others.",
    DEPENDENCY,
    CIRCUIT_STATE,
)
LIMIT_CONCURRENCY: Final = _gauge(
    "durable_retry.limits.concurrency", "{attempt}", "Attempts that may be under way at once.", DEPENDENCY
)
LIMIT_RATE: Final = _gauge(
    "durable_retry.limits.rate",
    "{attempt}/s",
    "Attempts that may start a second: rate_per_second.",
    DEPENDENCY,
)
DEAD_LETTERS: Final = _gauge(
    "durable_retry.dead_letter.count",
    "{dead_letter}",
    "Open dead letters, also 0; without a dependency those of messages that name none.",
    DEPENDENCY,
)
DEAD_LETTER_AGE: Final = _gauge(
    "durable_retry.dead_letter.age", "s", "Age of the oldest open dead letter; 0 when there is none."
)
OUTBOX_LAG: Final = _gauge(
    "durable_retry.outbox.lag", "s", "Age of the oldest pending event; 0 when none is pending."
)
LANES_BLOCKED: Final = _gauge(
    "durable_retry.order_lanes.blocked", "{lane}", "Lanes of order keys that a dead letter blocks."
)
LANES_WAITING: Final = _gauge(
    "durable_retry.order_lanes.waiting", "{operation}", "Operations that wait in blocked lanes."
)

GAUGES: Final = tuple(each for each in list(globals().values()) if isinstance(each, Metric))

SHOWN_SECONDS: Final = 150.0
"""How long a gauge shows its last values: `watch` reads them every minute, and one run may fail."""

type GaugeValue = tuple[float, Mapping[str, Any]]
"""A value and its labels."""

_latest: Final[dict[str, tuple[float, Sequence[GaugeValue]]]] = {}
_known: Final[WeakKeyDictionary[Meter, set[str]]] = WeakKeyDictionary()
"""The gauges that each meter shows: those that had a value."""


def show_gauges(values: Mapping[Metric, Sequence[GaugeValue]]) -> None:
    """Replace the values of gauges; the timer `watch` reads them.

    The timer runs on one instance of the fleet at a time. An instance shows its values until the next run is
    surely over and then none, so that two instances do not show different values.
    """
    now_seconds, made_by = clock.monotonic_seconds(), meter()
    known = _known.setdefault(made_by, set())
    for metric, value in values.items():
        if metric.name not in known:
            known.add(metric.name)
            observed = partial(_observations, metric.name)
            made_by.create_observable_gauge(metric.name, [observed], metric.unit, metric.description)
        _latest[metric.name] = now_seconds, value


def latest(name: str) -> Sequence[GaugeValue]:
    """Return the values of a gauge; empty when they are too old or another instance reads them."""
    read_seconds, values = _latest.get(name, (0.0, ()))
    return values if clock.monotonic_seconds() - read_seconds < SHOWN_SECONDS else ()


def _observations(name: str, _: CallbackOptions) -> Iterator[Observation]:
    return (Observation(value, labels) for value, labels in latest(name))
