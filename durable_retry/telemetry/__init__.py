"""Traces, metrics and log lines, and starting the OpenTelemetry SDK when something receives them."""

import logging
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from durable_retry.runtime.deferred import REFERENCES, imported

DEFAULT_SERVICE: Final = "durable-retry"


class Signal(StrEnum):
    """Kinds of telemetry."""

    TRACES = "traces"
    METRICS = "metrics"
    LOGS = "logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receivers:
    """The receivers of each signal."""

    # Signals for the OTLP collector that the standard settings name.
    otlp: frozenset[Signal] = field(default_factory=frozenset)
    azure_monitor: frozenset[Signal] = field(default_factory=frozenset)  # signals for Application Insights
    # Connection string of Application Insights; "" when it is not used.
    connection: str = field(default="", repr=False)
    service: str = DEFAULT_SERVICE  # service name, unless the standard settings set one


_log = logging.getLogger(__name__)

_START: Final = "durable_retry.telemetry.exporters:start"


def start_telemetry(receivers: Receivers) -> None:
    """Install the SDK's providers; imports nothing when there is no receiver.

    Invalid settings of the SDK are logged: an app without telemetry is better than no app.
    """
    if not (receivers.otlp or receivers.azure_monitor):
        return
    # The SDK takes long to import, and most apps send nothing.
    REFERENCES.add(_START)
    try:
        imported(_START)(receivers)
    except Exception as error:  # noqa: BLE001 - each package has errors of its own for settings
        _log.error("telemetry is not started: %s: %s", type(error).__name__, error)
