"""The app's metrics as a table, recording them, and the latest values of gauges.

Recording does nothing without the SDK.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter

from durable_retry.runtime import clock
from durable_retry.telemetry.spans import (
    CATEGORY,
    CIRCUIT_OF,
    CIRCUIT_STATE,
    CIRCUIT_STATE_BEFORE,
    DEPENDENCY,
    OUTCOME,
    PRIORITY,
    SCOPE,
    SOURCE,
    STATUS,
    WAIT_KIND,
)

_CALL_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_WAIT_BUCKETS: Final = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 14_400, 86_400)
_OPERATION_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400, 604_800)


class MetricKind(StrEnum):
    """How a metric is recorded."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str  # as exported
    kind: MetricKind  # counter, histogram or gauge
    unit: str  # in UCUM; `s` for durations
    labels: tuple[str, ...]  # names of its labels, all with few values
    description: str  # what it counts or measures
    buckets: tuple[float, ...] = ()  # upper bounds of a histogram's buckets, in its unit


SUBMISSIONS: Final = Metric(
    "durable_retry.submissions",
    MetricKind.COUNTER,
    "{submission}",
    (DEPENDENCY, SOURCE, OUTCOME, PRIORITY),
    "Operations submitted, by outcome: started, replayed or key_reused.",
)
ATTEMPT_DURATION: Final = Metric(
    "durable_retry.attempt.duration",
    MetricKind.HISTOGRAM,
    "s",
    (DEPENDENCY, OUTCOME, CATEGORY),
    "Attempts and how long each took: success, failure with its category, or not_sent.",
    _CALL_BUCKETS,
)
RETRIES: Final = Metric(
    "durable_retry.retries",
    MetricKind.COUNTER,
    "{retry}",
    (DEPENDENCY,),
    "Attempts after the first: attempts divided by attempts less these is the retry amplification.",
)
WAIT_DURATION: Final = Metric(
    "durable_retry.wait.duration",
    MetricKind.HISTOGRAM,
    "s",
    (DEPENDENCY, WAIT_KIND, PRIORITY),
    "Waits of operations that are over: for a retry, the circuit or the retry budget.",
    _WAIT_BUCKETS,
)
OPERATION_DURATION: Final = Metric(
    "durable_retry.operation.duration",
    MetricKind.HISTOGRAM,
    "s",
    (DEPENDENCY, STATUS, PRIORITY),
    "From acceptance to the end, every wait included, by how operations ended.",
    _OPERATION_BUCKETS,
)
DEBOUNCED: Final = Metric(
    "durable_retry.debounced",
    MetricKind.COUNTER,
    "{operation}",
    (DEPENDENCY, OUTCOME),
    "Operations with a debounce key that ended: replaced by a later one, or ran.",
)
CIRCUIT_MOVES: Final = Metric(
    "durable_retry.circuit.moves",
    MetricKind.COUNTER,
    "{move}",
    (DEPENDENCY, CIRCUIT_OF, CIRCUIT_STATE_BEFORE, CIRCUIT_STATE),
    "Changes of a circuit's state.",
)
FAILED_OPEN_CALLS: Final = Metric(
    "durable_retry.circuit.blind_calls",
    MetricKind.COUNTER,
    "{call}",
    (DEPENDENCY,),
    "Attempts that went on without the circuit because it could not be read.",
)
POSTPONEMENTS: Final = Metric(
    "durable_retry.retry_budget.postponements",
    MetricKind.COUNTER,
    "{retry}",
    (DEPENDENCY,),
    "Retries that the retry budget postponed.",
)

METRICS: Final = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
"""What is recorded; gauges belong to who shows them."""

SHOWN_SECONDS: Final = 150.0
"""How long a gauge shows its last values: `watch` reads them every minute, and one run may fail."""

type GaugeValue = tuple[float, Mapping[str, Any]]
"""A value and its labels."""

type _Record = Callable[[float, Mapping[str, Any]], None]


def record(metric: Metric, value: float, labels: Mapping[str, str]) -> None:
    """Record one value of a counter or a histogram; a label that does not apply is left out."""
    _instruments.recorders[metric.name](value, labels)


def show_gauges(values: Mapping[Metric, Sequence[GaugeValue]]) -> None:
    """Replace the values of gauges; the timer `watch` reads them.

    The timer runs on one instance of the fleet at a time. An instance shows its values until the next run is
    surely over and then none, so that two instances do not show different values.
    """
    now_seconds = clock.monotonic_seconds()
    for metric, value in values.items():
        _instruments.show(metric)
        _latest[metric.name] = now_seconds, value


def latest(name: str) -> Sequence[GaugeValue]:
    """Return the values of a gauge; empty when they are too old or another instance reads them."""
    read_seconds, values = _latest.get(name, (0.0, ()))
    return values if clock.monotonic_seconds() - read_seconds < SHOWN_SECONDS else ()


@dataclass(slots=True)
class _Instruments:
    """The instruments of a meter; that of a gauge, whose values the SDK collects, from its first value on."""

    meter: Meter
    recorders: dict[str, _Record] = field(init=False)
    gauges: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.recorders = {metric.name: self._recorder(metric) for metric in METRICS}

    def _recorder(self, metric: Metric) -> _Record:
        if metric.kind is MetricKind.COUNTER:
            return self.meter.create_counter(metric.name, metric.unit, metric.description).add
        return self.meter.create_histogram(
            metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=metric.buckets
        ).record

    def show(self, gauge: Metric) -> None:
        """Show a gauge from now on."""
        if gauge.name not in self.gauges:
            self.gauges.add(gauge.name)
            observe = _gauge_observer(gauge)
            self.meter.create_observable_gauge(gauge.name, [observe], gauge.unit, gauge.description)


def _gauge_observer(metric: Metric) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def observe(_: CallbackOptions) -> Iterator[Observation]:
        return (Observation(value, labels) for value, labels in latest(metric.name))

    return observe


_instruments = _Instruments(get_meter(SCOPE))
_latest: dict[str, tuple[float, Sequence[GaugeValue]]] = {}


@contextmanager
def using(provider: MeterProvider) -> Iterator[None]:
    """Use another provider inside the block; for tests."""
    global _instruments  # noqa: PLW0603 - the process's one set of instruments
    previous = _instruments
    _instruments = _Instruments(provider.get_meter(SCOPE))
    try:
        yield
    finally:
        _instruments = previous
