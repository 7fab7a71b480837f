"""Whether to tell anything to anyone: found in the settings, before anything of the SDK is imported."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

OTLP_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
AZURE_MONITOR: Final = "APPLICATIONINSIGHTS_CONNECTION_STRING"
DISABLED: Final = "OTEL_SDK_DISABLED"
WORKER_OPENTELEMETRY: Final = "PYTHON_ENABLE_OPENTELEMETRY"
WORKER_DISTRO: Final = "PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY"
_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
_SPOKEN_PROTOCOL: Final = "http/protobuf"

_log = logging.getLogger(__name__)


class Signal(StrEnum):
    """What can be sent; the names are those in OpenTelemetry's settings."""

    TRACES = "TRACES"
    METRICS = "METRICS"
    LOGS = "LOGS"


@dataclass(frozen=True, slots=True)
class Receivers:
    """Who is told what.

    Attributes:
        otlp: Signals for the OTLP collector that the standard settings name.
        azure_monitor: Signals for Application Insights.
    """

    otlp: frozenset[Signal] = field(default_factory=frozenset)
    azure_monitor: frozenset[Signal] = field(default_factory=frozenset)


def receivers_in(environ: Mapping[str, str]) -> Receivers:
    """Read the standard settings of OpenTelemetry, and that of Application Insights.

    Log lines go to Application Insights only when the worker keeps them from the host: otherwise the host
    sends them there, and each would be there twice. When the worker sets up Microsoft's distribution itself,
    Application Insights is its business.
    """
    if _is_true(environ.get(DISABLED)):
        return Receivers()
    signals = [signal for signal in Signal if environ.get(f"OTEL_{signal}_EXPORTER", "").strip() != "none"]
    return Receivers(
        otlp=frozenset(signal for signal in signals if _wants_otlp(signal, environ)),
        azure_monitor=frozenset(signal for signal in signals if _wants_azure_monitor(signal, environ)),
    )


def start_telemetry(environ: Mapping[str, str]) -> None:
    """Put the SDK behind the API if somebody is to be told something; otherwise import nothing.

    Args:
        environ: The app settings.
    """
    receivers = receivers_in(environ)
    if receivers == Receivers():
        return
    if receivers.otlp and environ.get(_PROTOCOL, _SPOKEN_PROTOCOL) != _SPOKEN_PROTOCOL:
        _log.warning("%s: only %s is spoken here", _PROTOCOL, _SPOKEN_PROTOCOL)
    from telemetry import export  # noqa: PLC0415 - the SDK costs memory and start-up time: only when wanted

    export.start(receivers, environ)


def _wants_otlp(signal: Signal, environ: Mapping[str, str]) -> bool:
    if environ.get(OTLP_ENDPOINT) or environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"):
        return True
    return environ.get(f"OTEL_{signal}_EXPORTER", "").strip() == "otlp"


def _wants_azure_monitor(signal: Signal, environ: Mapping[str, str]) -> bool:
    if not environ.get(AZURE_MONITOR) or _is_true(environ.get(WORKER_DISTRO)):
        return False
    return signal is not Signal.LOGS or _is_true(environ.get(WORKER_OPENTELEMETRY))


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() in {"true", "1"}
