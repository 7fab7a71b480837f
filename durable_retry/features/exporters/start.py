"""Starting the OpenTelemetry SDK when something receives telemetry."""

import logging
import os
from typing import Final

from durable_retry.features.exporters.receivers import Receivers
from durable_retry.features.exporters.settings import receivers_in
from durable_retry.runtime.deferred import REFERENCES, imported

_log = logging.getLogger(__name__)

_START: Final = "durable_retry.features.exporters.sdk:start"


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


def begin() -> None:
    """Start what the app settings name."""
    start_telemetry(receivers_in(os.environ))
