"""Traces, metrics and log lines, and starting the OpenTelemetry SDK when something receives them."""

import logging

from durable_retry.telemetry.receivers import Receivers

_log = logging.getLogger(__name__)


def start_telemetry(receivers: Receivers) -> None:
    """Install the SDK's providers; imports nothing when there is no receiver.

    Invalid settings of the SDK are logged: an app without telemetry is better than no app.
    """
    if not (receivers.otlp or receivers.azure_monitor):
        return
    from durable_retry.telemetry import exporters  # noqa: PLC0415 - the SDK takes long to import; most apps send nothing

    try:
        exporters.start(receivers)
    except Exception as error:  # noqa: BLE001 - each package has errors of its own for settings
        _log.error("telemetry is not started: %s: %s", type(error).__name__, error)
