"""Exporters to Application Insights; its package takes half a second to import."""

import logging
from typing import Any

from azure.monitor.opentelemetry.exporter import (
    AzureMonitorLogExporter,
    AzureMonitorMetricExporter,
    AzureMonitorTraceExporter,
)

from durable_retry.telemetry.receivers import Signal

# Each request is logged at info level: a line that would be sent as well.
logging.getLogger("azure.core.pipeline.policies.http_logging_policy").setLevel(logging.WARNING)


def exporter_of(signal: Signal, connection: str) -> Any:
    """Make the exporter of a signal.

    Args:
        signal: Which.
        connection: Value of APPLICATIONINSIGHTS_CONNECTION_STRING. How to authenticate, the exporter reads
            from APPLICATIONINSIGHTS_AUTHENTICATION_STRING.
    """
    made = {
        Signal.TRACES: AzureMonitorTraceExporter,
        Signal.METRICS: AzureMonitorMetricExporter,
        Signal.LOGS: AzureMonitorLogExporter,
    }
    return made[signal](connection_string=connection)
