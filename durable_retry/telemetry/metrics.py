"""What a metric is, and recording one.

Recording does nothing without the SDK.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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
    recorder = _recorders.get(metric.name)
    if recorder is None:
        recorder = _recorders[metric.name] = _new_recorder(metric)
    recorder(value, labels)


def meter() -> Meter:
    """Return the present meter, which makes the instruments; `using` replaces it."""
    return _meter


def _new_recorder(metric: Metric) -> _Record:
    if metric.kind is MetricKind.COUNTER:
        return _meter.create_counter(metric.name, metric.unit, metric.description).add
    return _meter.create_histogram(
        metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=metric.buckets
    ).record


_meter = get_meter(SCOPE)
_recorders: dict[str, _Record] = {}
"""What records each metric of the meter, from its first value on."""


@contextmanager
def using(provider: MeterProvider) -> Iterator[None]:
    """Use another provider inside the block; for tests."""
    global _meter, _recorders
    previous = _meter, _recorders
    _meter, _recorders = provider.get_meter(SCOPE), {}
    try:
        yield
    finally:
        _meter, _recorders = previous
