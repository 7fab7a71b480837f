"""Who receives which telemetry."""

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
    """The receivers of each signal."""

    # Signals for the OTLP collector that the standard settings name.
    otlp: frozenset[Signal] = field(default_factory=frozenset)
    azure_monitor: frozenset[Signal] = field(default_factory=frozenset)  # signals for Application Insights
    # Connection string of Application Insights; "" when it is not used.
    connection: str = field(default="", repr=False)
    service: str = DEFAULT_SERVICE  # service name, unless the standard settings set one
