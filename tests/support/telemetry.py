"""The SDK's own in-memory receivers behind the app's telemetry, for as long as a test runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from durable_retry.base.trace_context import TraceContext
from durable_retry.telemetry import metrics, spans
from durable_retry.telemetry.metrics import Metric
from tests.support.builders import an_operation

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER_ID = "b7ad6b7169203331"
CALLER = f"00-{TRACE_ID}-{CALLER_ID}-01"
CALLED = an_operation(trace=TraceContext(CALLER, "vendor=1"))


@dataclass(frozen=True)
class Recorded:
    """What the receivers got.

    Attributes:
        exporter: Has the spans.
        reader: Has the metrics.
        provider: Makes spans in the name of somebody else, such as a host.
    """

    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    provider: TracerProvider = field(default_factory=TracerProvider)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        (found,) = (span for span in self.spans if span.name == name)
        return found

    def points(self, metric: Metric) -> list[tuple[dict[str, Any], Any]]:
        """The labels and values of a metric; of a histogram, how many values there were and their sum."""
        data = self.reader.get_metrics_data()
        found = [
            one
            for group in ([] if data is None else data.resource_metrics)
            for scope in group.scope_metrics
            for one in scope.metrics
            if one.name == metric.name
        ]
        return [
            (dict(point.attributes or {}), value(point)) for one in found for point in one.data.data_points
        ]


def value(point: NumberDataPoint | HistogramDataPoint | ExponentialHistogramDataPoint) -> Any:
    return point.value if isinstance(point, NumberDataPoint) else (point.count, round(point.sum, 6))


def ids(span: ReadableSpan) -> tuple[str, str]:
    """The ids of a span's trace and of its parent."""
    assert span.context is not None
    parent = "" if span.parent is None else f"{span.parent.span_id:016x}"
    return f"{span.context.trace_id:032x}", parent


def an_end(**changes: Any) -> dict[str, Any]:
    """A last status document, of an operation that waited for a retry and for the circuit."""
    document: dict[str, Any] = {
        "operation_id": "op-sample",
        "key": "evt-1",
        "dependency": "payments",
        "correlation_id": None,
        "source": "http",
        "status": "succeeded",
        "attempt_count": 2,
        "attempts": [
            {
                "number": 1,
                "started_at": "2026-11-21T12:00:00Z",
                "duration_ms": 500.0,
                "category": "transient",
                "status_code": 503,
                "error": None,
                "next_delay_seconds": 2.0,
                "delay_reasons": ["fixed 2 s"],
            },
            {
                "number": 2,
                "started_at": "2026-11-21T12:00:09Z",
                "duration_ms": 1.0,
                "category": None,
                "status_code": 200,
                "error": None,
                "next_delay_seconds": None,
                "delay_reasons": [],
            },
        ],
        "waits": [
            {
                "kind": "circuit",
                "began_at": "2026-11-21T12:00:03Z",
                "until": "2026-11-21T12:00:09Z",
                "delay_reasons": ["circuit open"],
                "before_attempt": 2,
            }
        ],
        "dead_letter": None,
        "created_at": "2026-11-21T12:00:00Z",
        "updated_at": "2026-11-21T12:00:10.25Z",
    }
    return document | changes


@contextmanager
def telemetry_stage() -> Iterator[Recorded]:
    """Send everything to a new set of receivers for a while."""
    recorded = Recorded()
    recorded.provider.add_span_processor(SimpleSpanProcessor(recorded.exporter))
    meters = MeterProvider([recorded.reader])
    with spans.using(recorded.provider), metrics.using(meters):
        yield recorded
    meters.shutdown()
    recorded.provider.shutdown()


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """What is recorded during a test; a `conftest.py` takes it over."""
    with telemetry_stage() as recorded:
        yield recorded
