"""App settings of the app itself: its files and limits, what it keeps, and who receives telemetry."""

import logging
import os
from collections.abc import Mapping
from datetime import timedelta
from functools import cache, cached_property
from importlib import metadata
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator

from durable_retry.settings.group import SettingsGroup, days, setting, span_of_days
from durable_retry.telemetry import DEFAULT_SERVICE, Receivers, Signal

_KIB: Final = 1024


def _check_trace_url(url: str) -> str:
    if url and (not url.lower().startswith(("https://", "http://")) or "{trace_id}" not in url):
        raise ValueError(f"must be an http(s) URL with {{trace_id}} in it, not {url!r}")
    return url


_OF_PACKAGE: Final = "package:"


def _version_of(text: str) -> str:
    if not text.startswith(_OF_PACKAGE):
        return text
    try:
        return metadata.version(text.removeprefix(_OF_PACKAGE))
    except (metadata.PackageNotFoundError, ValueError):
        raise ValueError(f"must name a package that is installed, not {text!r}") from None


class AppSettings(SettingsGroup):
    """The app's own settings."""

    heading: ClassVar[str] = "The app"

    dependencies_file: str = setting(
        "The file with the dependencies, beside `function_app.py`.", "dependencies.toml"
    )
    handlers: str = setting(
        "Modules with handlers, separated by commas, in addition to those that `function_app.py` names."
    )
    app_version: Annotated[str, AfterValidator(_version_of)] = setting(
        "The app's version, which attempts and dead letters carry; `package:NAME` is that of an installed "
        "package. Not set: they carry none."
    )
    trace_url: Annotated[str, AfterValidator(_check_trace_url)] = setting(
        "Where a trace is looked at, an http(s) URL with `{trace_id}` in it; traced operations link to it. "
        "Not set: no link."
    )
    max_body_bytes: int = setting(
        "The largest body of a request or message, and the largest item of a batch.",
        64 * _KIB,
        unit="bytes",
        least=1,
        # A dead letter is one row of at most 1 MiB, and a character that is not ASCII can take twelve bytes.
        most=128 * _KIB,
    )
    response_read_limit_bytes: int = setting(
        "The largest part of a dependency's answer that is read.", 1024 * _KIB, unit="bytes", least=1
    )
    response_store_limit_bytes: int = setting(
        "The largest part of an answer that a result keeps; a cut is marked.",
        16 * _KIB,
        unit="bytes",
        least=1,
    )
    result_inline_bytes: int = setting(
        "The largest result that histories and records carry; a larger one is stored once, beside them. "
        "During a deploy over a version without this setting: 10000000.",
        4 * _KIB,
        unit="bytes",
        least=0,
    )
    azure_functions_durable_strict_typing: str = setting(
        "The Durable SDK's own; the app switches it on unless it is set. Leave it on: with `0`, JSON from "
        "callers can name classes.",
        "1",
    )
    script_root: str = setting(
        "The folder of host.json; the host's. Not set: the current folder.", name="AzureWebJobsScriptRoot"
    )

    @property
    def handler_modules(self) -> tuple[str, ...]:
        """The modules that `HANDLERS` names."""
        return tuple(filter(None, (name.strip() for name in self.handlers.split(","))))


class RetentionSettings(SettingsGroup):
    """How long each kind is kept; 0 days mean for ever."""

    heading: ClassVar[str] = "Retention"

    dead_letter_retention_days: float = days(
        "How long archived dead letters are kept; 0 = for ever. Open ones are kept until a person acts.", 30.0
    )
    history_retention_days: float = days(
        "How long finished orchestrations and batches are kept, from their start; 0 = for ever.", 7.0
    )
    sent_event_retention_days: float = days(
        "How long sent events are kept, from their operation's success; 0 = for ever.", 7.0
    )

    @property
    def archived_for(self) -> timedelta | None:
        """How long archived dead letters are kept; None for ever."""
        return span_of_days(self.dead_letter_retention_days)

    @cached_property  # Each submission asks.
    def history_for(self) -> timedelta | None:
        """How long finished orchestrations and batches are kept, from their start; None for ever."""
        return span_of_days(self.history_retention_days)

    @property
    def sent_for(self) -> timedelta | None:
        """How long sent events are kept, from their operation's success; None for ever."""
        return span_of_days(self.sent_event_retention_days)


@cache
def retention_settings() -> RetentionSettings:
    """Return this process's settings, read once; see `SettingsGroup.read`."""
    return RetentionSettings.read(os.environ)


_PROTOCOL: Final = "http/protobuf"

_log = logging.getLogger(__name__)


class TelemetrySettings(SettingsGroup):
    """Who receives traces, metrics and log lines.

    The names are OpenTelemetry's, Application Insights' and the Python worker's; their packages read more of
    OpenTelemetry's standard settings than these.
    """

    heading: ClassVar[str] = "Telemetry"

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

    def has_collector(self, signal: Signal) -> bool:
        """Whether a collector receives a signal."""
        own = getattr(self, f"otel_exporter_otlp_{signal}_endpoint")
        return bool(self.otel_exporter_otlp_endpoint or own)


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
    otlp = frozenset(signal for signal in signals if settings.has_collector(signal))
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
