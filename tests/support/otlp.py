"""An OTLP/HTTP collector on loopback that keeps what it is sent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.stub_server import StubServer

REQUESTS: dict[str, Any] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


@dataclass(frozen=True)
class Received:
    """A span, a log line or a point of a metric.

    Attributes:
        name: Of the span or metric; the text of a log line.
        attributes: With the values that they have in Python.
        trace_id: In hexadecimal; "" where there is none.
        span_id: As `trace_id`.
        parent_id: As `trace_id`.
        raw: The protobuf message.
    """

    name: str
    attributes: dict[str, Any]
    trace_id: str = ""
    span_id: str = ""
    parent_id: str = ""
    raw: Any = None


@dataclass
class OtlpReceiver:
    """What was received so far.

    Attributes:
        url: The value of OTEL_EXPORTER_OTLP_ENDPOINT that leads here.
        services: Names of those who sent.
        stop: Goes away, at once.
    """

    url: str = ""
    spans: list[Received] = field(default_factory=list)
    points: list[Received] = field(default_factory=list)
    lines: list[Received] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    stop: Callable[[], None] = lambda: None

    def take(self, path: str, body: bytes) -> bytes:
        message = REQUESTS[path].FromString(body)
        match message:
            case ExportTraceServiceRequest():
                for group in message.resource_spans:
                    self.services.add(attributes(group.resource)["service.name"])
                    for scope in group.scope_spans:
                        self.spans.extend(map(span, scope.spans))
            case ExportMetricsServiceRequest():
                for group in message.resource_metrics:
                    self.services.add(attributes(group.resource)["service.name"])
                    for scope in group.scope_metrics:
                        self.points.extend(point for metric in scope.metrics for point in points(metric))
            case ExportLogsServiceRequest():
                for group in message.resource_logs:
                    self.services.add(attributes(group.resource)["service.name"])
                    for scope in group.scope_logs:
                        self.lines.extend(map(line, scope.log_records))
        return b""  # the empty answer, as protobuf


def attributes(holder: Any) -> dict[str, Any]:
    return {each.key: value(each.value) for each in holder.attributes}


def value(held: Any) -> Any:
    kind = held.WhichOneof("value")
    if kind == "array_value":
        return [value(each) for each in held.array_value.values]
    return None if kind is None else getattr(held, kind)


def span(raw: Any) -> Received:
    return Received(
        raw.name, attributes(raw), raw.trace_id.hex(), raw.span_id.hex(), raw.parent_span_id.hex(), raw
    )


def line(raw: Any) -> Received:
    return Received(value(raw.body), attributes(raw), raw.trace_id.hex(), raw.span_id.hex(), raw=raw)


def points(metric: Any) -> Iterator[Received]:
    for point in getattr(metric, metric.WhichOneof("data")).data_points:
        yield Received(metric.name, attributes(point), raw=point)


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """Receive on a free port of loopback for a while."""
    receiver = OtlpReceiver()
    server = StubServer(receiver.take)
    receiver.url, receiver.stop = server.url, server.stop
    try:
        yield receiver
    finally:
        server.stop()
