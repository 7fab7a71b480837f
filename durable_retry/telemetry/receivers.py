"""The receivers of telemetry."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

DEFAULT_SERVICE: Final = "durable-retry"


class Signal(StrEnum):
    """Kinds of telemetry."""

    TRACES = "traces"
    METRICS = "metrics"
    LOGS = "logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receivers:
    """The receivers of each signal.

    Attributes:
        otlp: Signals for the OTLP collector that the standard settings name.
        azure_monitor: Signals for Application Insights.
        connection: Connection string of Application Insights; "" when it is not used.
        service: Service name, unless the standard settings set one.
    """

    otlp: frozenset[Signal] = field(default_factory=frozenset)
    azure_monitor: frozenset[Signal] = field(default_factory=frozenset)
    connection: str = field(default="", repr=False)
    service: str = DEFAULT_SERVICE
