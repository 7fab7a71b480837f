"""App settings that say who receives telemetry."""

import logging
from collections.abc import Mapping
from typing import ClassVar, Final

from durable_retry.features.exporters.receivers import DEFAULT_SERVICE, Receivers, Signal
from durable_retry.settings.group import SettingsGroup, setting

_PROTOCOL: Final = "http/protobuf"

_log = logging.getLogger(__name__)


class TelemetrySettings(SettingsGroup):
    """Who receives traces, metrics and log lines.

    The names are OpenTelemetry's, Application Insights' and the Python worker's; their packages read more of
    OpenTelemetry's standard settings than these.
    """

    heading: ClassVar[str] = "Telemetry"
    is_shared: ClassVar[bool] = True

    otel_exporter_otlp_endpoint: str = setting(
        "Base URL of an OTLP collector over HTTP, such as `http://localhost:4318`. Not set: none."
    )
    otel_exporter_otlp_traces_endpoint: str = setting("Whole URL for traces, in place of the base URL.")
    otel_exporter_otlp_metrics_endpoint: str = setting("The same for metrics.")
    otel_exporter_otlp_logs_endpoint: str = setting("The same for log lines.")
    otel_exporter_otlp_protocol: str = setting(
        "Only `http/protobuf` is supported; any other logs a warning.", _PROTOCOL
    )
    otel_exporter_otlp_headers: str = setting(
        "Headers for the collector, `name=value` separated by commas.", secret=True
    )
    otel_traces_exporter: str = setting("`none` switches traces off.", "otlp")
    otel_metrics_exporter: str = setting("`none` switches metrics off.", "otlp")
    otel_logs_exporter: str = setting("`none` switches log lines off.", "otlp")
    otel_metric_export_interval: str = setting("Milliseconds between two exports of metrics.", "60000")
    otel_traces_sampler: str = setting(
        "Which traces are kept, with `OTEL_TRACES_SAMPLER_ARG`.", "parentbased_always_on"
    )
    otel_service_name: str = setting(
        "Name of the service. Not set: the Function App's name, else `durable-retry`."
    )
    website_site_name: str = setting("Name of the Function App; Azure sets it.")
    otel_sdk_disabled: str = setting("`true`: no telemetry, whatever else is set.", "false")
    applicationinsights_connection_string: str = setting(
        "Application Insights as a receiver; the host reads it too. Not set: none.", secret=True
    )
    applicationinsights_authentication_string: str = setting(
        "`Authorization=AAD`, with `ClientId=...` of a user-assigned identity: by managed identity. Not set: "
        "the connection string alone."
    )
    python_enable_opentelemetry: str = setting(
        "`true`: the worker makes the host's spans the parents of the app's, and withholds log lines from "
        "the host; the app sends them to Application Insights itself.",
        "false",
    )
    python_applicationinsights_enable_telemetry: str = setting(
        "`true`: the worker sets up Microsoft's own distribution, which must be installed, and the app sends "
        "nothing to Application Insights itself.",
        "false",
    )

    def exports(self, signal: Signal) -> bool:
        """Whether a signal is sent at all."""
        return bool(getattr(self, f"otel_{signal}_exporter") != "none")

    def endpoint_for(self, signal: Signal) -> str | None:
        """Return the field with the URL of the collector that receives a signal; None when none does."""
        fields = (f"otel_exporter_otlp_{signal}_endpoint", "otel_exporter_otlp_endpoint")
        return next((field for field in fields if getattr(self, field)), None)


def receivers_in(environ: Mapping[str, str]) -> Receivers:
    """Read the receivers; none unless a setting names one.

    Log lines go to Application Insights only when the worker does not pass them to the host: the host sends
    them there too, and each would arrive twice. When the worker sets up Microsoft's distribution, that
    distribution alone sends to Application Insights.
    """
    settings = TelemetrySettings.read(environ)
    if _is_true(settings.otel_sdk_disabled):
        return Receivers()
    signals = [signal for signal in Signal if settings.exports(signal)]
    endpoints = {signal: field for signal in signals if (field := settings.endpoint_for(signal))}
    for field in endpoints.values():
        if not getattr(settings, field).lower().startswith(("http://", "https://")):
            name = settings.name_of(field)
            _log.error("telemetry is not started: %s is no http(s) URL, such as http://localhost:4318", name)
            return Receivers()
    otlp = frozenset(endpoints)
    is_distribution = _is_true(settings.python_applicationinsights_enable_telemetry)
    connection = "" if is_distribution else settings.applicationinsights_connection_string
    if not _is_true(settings.python_enable_opentelemetry):
        signals = [signal for signal in signals if signal is not Signal.LOGS]
    if otlp and settings.otel_exporter_otlp_protocol != _PROTOCOL:
        name = settings.name_of("otel_exporter_otlp_protocol")
        _log.warning("%s: only %s is supported", name, _PROTOCOL)
    return Receivers(
        otlp=otlp,
        azure_monitor=frozenset(signals if connection else ()),
        connection=connection,
        service=settings.website_site_name or DEFAULT_SERVICE,
    )


def _is_true(text: str) -> bool:
    return text.strip().lower() in {"true", "1"}
