"""Receivers of telemetry, from the standard settings of OpenTelemetry and Application Insights."""

import logging
from collections.abc import Mapping
from typing import Final

from durable_retry.settings.catalogue import (
    AZURE_MONITOR,
    LOGS_EXPORTER,
    METRICS_EXPORTER,
    OTLP_ENDPOINT,
    OTLP_LOGS_ENDPOINT,
    OTLP_METRICS_ENDPOINT,
    OTLP_PROTOCOL,
    OTLP_TRACES_ENDPOINT,
    SITE_NAME,
    TELEMETRY_DISABLED,
    TRACES_EXPORTER,
    WORKER_DISTRIBUTION,
    WORKER_OPENTELEMETRY,
)
from durable_retry.settings.setting import Text
from durable_retry.telemetry.receivers import DEFAULT_SERVICE, Receivers, Signal

_EXPORTERS: Final = {
    Signal.TRACES: (TRACES_EXPORTER, OTLP_TRACES_ENDPOINT),
    Signal.METRICS: (METRICS_EXPORTER, OTLP_METRICS_ENDPOINT),
    Signal.LOGS: (LOGS_EXPORTER, OTLP_LOGS_ENDPOINT),
}

_log = logging.getLogger(__name__)


def receivers_in(environ: Mapping[str, str]) -> Receivers:
    """Read the receivers; none unless a setting names one.

    Log lines go to Application Insights only when the worker does not pass them to the host: the host sends
    them there too, and each would arrive twice. When the worker sets up Microsoft's distribution, that
    distribution alone sends to Application Insights.
    """
    if _is_true(TELEMETRY_DISABLED, environ):
        return Receivers()
    signals = [signal for signal in Signal if _EXPORTERS[signal][0].get(environ) != "none"]
    otlp = frozenset(signal for signal in signals if _has_collector(signal, environ))
    connection = "" if _is_true(WORKER_DISTRIBUTION, environ) else AZURE_MONITOR.get(environ)
    if not _is_true(WORKER_OPENTELEMETRY, environ):
        signals = [signal for signal in signals if signal is not Signal.LOGS]
    if otlp and OTLP_PROTOCOL.get(environ) != OTLP_PROTOCOL.default:
        _log.warning("%s: only %s is supported", OTLP_PROTOCOL.name, OTLP_PROTOCOL.default)
    return Receivers(
        otlp=otlp,
        azure_monitor=frozenset(signals if connection else ()),
        connection=connection,
        service=SITE_NAME.get(environ) or DEFAULT_SERVICE,
    )


def _has_collector(signal: Signal, environ: Mapping[str, str]) -> bool:
    return bool(OTLP_ENDPOINT.get(environ) or _EXPORTERS[signal][1].get(environ))


def _is_true(setting: Text, environ: Mapping[str, str]) -> bool:
    return setting.get(environ).strip().lower() in {"true", "1"}
