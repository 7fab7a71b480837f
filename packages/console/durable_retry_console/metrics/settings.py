"""App setting of the metrics over time."""

import os
from functools import cache
from typing import ClassVar

from durable_retry.settings.group import SettingsGroup, days


class MetricsSettings(SettingsGroup):
    """How long metrics over time are kept."""

    heading: ClassVar[str] = "Metrics over time"

    metrics_retention_days: float = days(
        "How long metrics over time are kept, by days that have ended; 0 = for ever.", 7.0
    )


@cache
def metrics_settings() -> MetricsSettings:
    """Return this process's settings, read once; see `SettingsGroup.read`."""
    return MetricsSettings.read(os.environ)
