"""The SDK behind the API: one provider per signal, each with an exporter per receiver.

Imported only when there is a receiver, see `telemetry.setup`. An existing provider, such as the worker's own,
is kept; the app reaches it through the API.
"""

import logging
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry._logs import get_logger_provider, set_logger_provider
from opentelemetry.instrumentation.logging.handler import LoggingHandler
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from durable_retry.telemetry.receivers import Receivers, Signal

_NOT_EXPORTED: Final = ("opentelemetry", "azure.core", "azure.monitor", "urllib3", "requests")
"""Loggers of the exporters themselves: exporting a line about exporting would never end."""


def start(receivers: Receivers) -> None:
    """Install the providers; they flush when the process ends."""
    resource = resource_of(receivers.service)
    _start_traces(resource, _exporters(receivers, Signal.TRACES))
    _start_metrics(resource, _exporters(receivers, Signal.METRICS))
    _start_logs(resource, _exporters(receivers, Signal.LOGS))


def resource_of(service: str) -> Resource:
    """Return the resource: from OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, else `service`."""
    named = Resource.create()
    if not str(named.attributes["service.name"]).startswith("unknown_service"):
        return named
    return named.merge(Resource({"service.name": service}))


def _start_traces(resource: Resource, exporters: list[SpanExporter]) -> None:
    if not exporters or isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    provider = TracerProvider(resource=resource)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def _start_metrics(resource: Resource, exporters: list[MetricExporter]) -> None:
    if not exporters or isinstance(metrics.get_meter_provider(), MeterProvider):
        return
    readers = [PeriodicExportingMetricReader(exporter) for exporter in exporters]
    metrics.set_meter_provider(MeterProvider(metric_readers=readers, resource=resource))


def _start_logs(resource: Resource, exporters: list[LogRecordExporter]) -> None:
    if not exporters or isinstance(get_logger_provider(), LoggerProvider):
        return
    provider = LoggerProvider(resource=resource)
    for exporter in exporters:
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    set_logger_provider(provider)
    handler = LoggingHandler(logger_provider=provider)
    handler.addFilter(_is_exported)
    logging.getLogger().addHandler(handler)


def _is_exported(record: logging.LogRecord) -> bool:
    return not any(record.name == name or record.name.startswith(f"{name}.") for name in _NOT_EXPORTED)


def _exporters(receivers: Receivers, signal: Signal) -> list[Any]:
    """Create the exporters of a signal; each receiver's package is imported only when it is used."""
    made = []
    if signal in receivers.otlp:
        from durable_retry.telemetry import otlp  # noqa: PLC0415 - imported only when it is a receiver

        made.append(otlp.exporter_of(signal))
    if signal in receivers.azure_monitor:
        from durable_retry.telemetry import azure_monitor  # noqa: PLC0415 - as above; it takes half a second

        made.append(azure_monitor.exporter_of(signal, receivers.connection))
    return made
