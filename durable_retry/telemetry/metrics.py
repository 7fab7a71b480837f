"""Metrics: recording them, and the latest values of gauges.

Recording does nothing without the SDK.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter

from durable_retry.runtime import clock
from durable_retry.telemetry.spans import SCOPE


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


SHOWN_SECONDS: Final = 150.0
"""How long a gauge shows its last values: `watch` reads them every minute, and one run may fail."""

type GaugeValue = tuple[float, Mapping[str, Any]]
"""A value and its labels."""

type _Record = Callable[[float, Mapping[str, Any]], None]


def record(metric: Metric, value: float, labels: Mapping[str, str]) -> None:
    """Record one value of a counter or a histogram; a label that does not apply is left out."""
    _instruments.recorder(metric)(value, labels)


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
    """The instruments of a meter, each from its first value on."""

    meter: Meter
    recorders: dict[str, _Record] = field(default_factory=dict)
    gauges: set[str] = field(default_factory=set)

    def recorder(self, metric: Metric) -> _Record:
        """Return what records a counter or a histogram; it is made for the first value."""
        recorder = self.recorders.get(metric.name)
        if recorder is None:
            recorder = self.recorders[metric.name] = self._new_recorder(metric)
        return recorder

    def _new_recorder(self, metric: Metric) -> _Record:
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
