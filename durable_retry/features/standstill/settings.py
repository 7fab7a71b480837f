"""App setting of what stands still."""

import os
from functools import cache
from typing import ClassVar

from durable_retry.settings.group import SettingsGroup, seconds


class StandstillSettings(SettingsGroup):
    """From when what stands still is trouble."""

    heading: ClassVar[str] = "Standstill"

    alert_stuck_seconds: float = seconds(
        "Degraded health, and an alert, when no nudge moves an orchestration that stands still for longer; "
        "0 = off.",
        180.0,
    )


@cache
def stuck_after_seconds() -> float:
    """Return this process's setting, read once; see `SettingsGroup.read`."""
    return StandstillSettings.read(os.environ).alert_stuck_seconds
