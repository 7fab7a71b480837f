"""Exporters: what sends traces, metrics and log lines to an OTLP collector and to Application Insights."""

from typing import Final

from durable_retry.plugins import Plugin
from durable_retry.runtime.deferred import imported


def _begin() -> None:
    imported("durable_retry.features.exporters.start:begin")()


PLUGIN: Final = Plugin(
    name="exporters",
    settings=("durable_retry.features.exporters.settings:TelemetrySettings",),
    begin=_begin,
)
