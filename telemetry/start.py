"""Putting the SDK behind the API, when somebody is to be told something."""

import logging
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

_log = logging.getLogger(__name__)

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
    """Put the SDK behind the API; when nobody is to be told anything, import nothing.

    Settings of the SDK's that cannot be used are logged: work that is not watched is better than none.
    """
    if not (receivers.otlp or receivers.azure_monitor):
        return
    from telemetry import export  # noqa: PLC0415 - the SDK costs memory and start-up time: only when wanted

    try:
        export.start(receivers)
    except Exception as error:  # noqa: BLE001 - each package has errors of its own for settings
        _log.error("telemetry is not started: %s: %s", type(error).__name__, error)
