"""Putting the SDK behind the API, when somebody is to be told something."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

DEFAULT_SERVICE: Final = "durable-retry"


class Signal(StrEnum):
    """What can be told."""

    TRACES = "traces"
    METRICS = "metrics"
    LOGS = "logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receivers:
    """Who is told what.

    Attributes:
        otlp: Signals for the OTLP collector that the standard settings name.
        azure_monitor: Signals for Application Insights.
        connection: Connection string of Application Insights; "" when it is told nothing.
        service: Who tells, unless the standard settings say.
    """

    otlp: frozenset[Signal] = field(default_factory=frozenset)
    azure_monitor: frozenset[Signal] = field(default_factory=frozenset)
    connection: str = field(default="", repr=False)
    service: str = DEFAULT_SERVICE


def start_telemetry(receivers: Receivers) -> None:
    """Put the SDK behind the API; when nobody is to be told anything, import nothing."""
    if receivers.otlp or receivers.azure_monitor:
        from telemetry import export  # noqa: PLC0415 - the SDK costs memory and start-up time: only when wanted

        export.start(receivers)
