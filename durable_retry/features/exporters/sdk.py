"""The SDK behind the API: one provider per signal, each with an exporter per receiver.

Imported only when there is a receiver, see `start.start_telemetry`. An existing provider, such as the
worker's own, is kept; the app reaches it through the API.
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

from durable_retry.features.exporters.receivers import Receivers, Signal

_NOT_EXPORTED: Final = ("opentelemetry", "azure.core", "azure.monitor", "urllib3", "requests")
"""Loggers of the exporters themselves: exporting a line about exporting would never end."""


def start(receivers: Receivers) -> None:
    """Install the providers; they flush when the process ends."""
    resource = resource_of(receivers.service)
    _start_traces(resource, _exporters_of_signal(receivers, Signal.TRACES))
    _start_metrics(resource, _exporters_of_signal(receivers, Signal.METRICS))
    _start_logs(resource, _exporters_of_signal(receivers, Signal.LOGS))


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


def _exporters_of_signal(receivers: Receivers, signal: Signal) -> list[Any]:
    made = []
    if signal in receivers.otlp:
        made.append(_otlp_exporter(signal))
    if signal in receivers.azure_monitor:
        made.append(_azure_monitor(signal, receivers.connection))
    return made


# The packages of the receivers are imported only when they are used: they take up to half a second.


def _otlp_exporter(signal: Signal) -> Any:
    """Make the exporter to an OTLP collector over HTTP; it reads `OTEL_EXPORTER_OTLP_...` itself."""
    from opentelemetry.exporter.otlp.proto.http import _log_exporter, metric_exporter, trace_exporter  # noqa: PLC0415 - see above

    exporters = {
        Signal.TRACES: trace_exporter.OTLPSpanExporter,
        Signal.METRICS: metric_exporter.OTLPMetricExporter,
        Signal.LOGS: _log_exporter.OTLPLogExporter,
    }
    return exporters[signal]()


def _azure_monitor(signal: Signal, connection: str) -> Any:
    """Make the exporter to Application Insights.

    It reads how to authenticate from APPLICATIONINSIGHTS_AUTHENTICATION_STRING.
    """
    from azure.monitor.opentelemetry import exporter  # noqa: PLC0415 - see above

    # Each request is logged at info level: a line that would be sent as well.
    logging.getLogger("azure.core.pipeline.policies.http_logging_policy").setLevel(logging.WARNING)
    exporters = {
        Signal.TRACES: exporter.AzureMonitorTraceExporter,
        Signal.METRICS: exporter.AzureMonitorMetricExporter,
        Signal.LOGS: exporter.AzureMonitorLogExporter,
    }
    return exporters[signal](connection_string=connection)
