"""What a metric is, and recording one.

Recording does nothing without the SDK.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from opentelemetry.metrics import Meter, MeterProvider, get_meter

from durable_retry.telemetry.spans import SCOPE


class MetricKind(StrEnum):
    """How a metric is recorded."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str  # as exported
    kind: MetricKind  # counter, histogram or gauge
    unit: str  # in UCUM; `s` for durations
    labels: tuple[str, ...]  # names of its labels, all with few values
    description: str  # what it counts or measures
    buckets: tuple[float, ...] = ()  # upper bounds of a histogram's buckets, in its unit


type _Record = Callable[[float, Mapping[str, Any]], None]


def record(metric: Metric, value: float, labels: Mapping[str, str]) -> None:
    """Record one value of a counter or a histogram; a label that does not apply is left out."""
    _instruments.recorder(metric)(value, labels)


def meter() -> Meter:
    """Return what makes the instruments; it is another one inside of `using`."""
    return _instruments.meter


@dataclass(slots=True)
class _Instruments:
    """The instruments of a meter, each from its first value on."""

    meter: Meter
    recorders: dict[str, _Record] = field(default_factory=dict)

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


_instruments = _Instruments(get_meter(SCOPE))


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
