"""Exporters to an OTLP collector over HTTP; the standard settings say where (`OTEL_EXPORTER_OTLP_...`)."""

from typing import Any

from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from durable_retry.telemetry.receivers import Signal


def exporter_of(signal: Signal) -> Any:
    """Make the exporter of a signal; it reads its settings from the environment."""
    made = {Signal.TRACES: OTLPSpanExporter, Signal.METRICS: OTLPMetricExporter, Signal.LOGS: OTLPLogExporter}
    return made[signal]()
