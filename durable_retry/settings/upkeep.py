"""App settings of retention: how long what has ended is kept."""

import os
from datetime import timedelta
from functools import cache
from typing import Any, ClassVar, Final

from durable_retry.settings.group import SettingsGroup, setting

_DAYS_OF_A_CENTURY: Final = 36_500
"""Far beyond any need, and far below the largest timedelta."""


def _days(meaning: str, default: float) -> Any:
    return setting(meaning, default, unit="days", least=0, most=_DAYS_OF_A_CENTURY)


class RetentionSettings(SettingsGroup):
    """How long each kind is kept; 0 days mean for ever."""

    heading: ClassVar[str] = "Retention"

    dead_letter_retention_days: float = _days(
        "How long archived dead letters are kept; 0 = for ever. Open ones are kept until a person acts.", 30.0
    )
    history_retention_days: float = _days(
        "How long finished orchestrations and batches are kept, from their start; 0 = for ever.", 7.0
    )
    sent_event_retention_days: float = _days(
        "How long sent events are kept, from their operation's success; 0 = for ever.", 7.0
    )
    metrics_retention_days: float = _days(
        "How long metrics over time are kept, by days that have ended; 0 = for ever.", 7.0
    )

    @property
    def archived_for(self) -> timedelta | None:
        """How long archived dead letters are kept; None for ever."""
        return _span_of_days(self.dead_letter_retention_days)

    @property
    def history_for(self) -> timedelta | None:
        """How long finished orchestrations and batches are kept, from their start; None for ever."""
        return _span_of_days(self.history_retention_days)

    @property
    def sent_for(self) -> timedelta | None:
        """How long sent events are kept, from their operation's success; None for ever."""
        return _span_of_days(self.sent_event_retention_days)

    @property
    def metrics_for(self) -> timedelta | None:
        """How long metrics over time are kept; None for ever."""
        return _span_of_days(self.metrics_retention_days)


def _span_of_days(days: float) -> timedelta | None:
    return None if days == 0 else timedelta(days=days)


@cache
def retention_settings() -> RetentionSettings:
    """Return this process's settings, read once; see `SettingsGroup.read`."""
    return RetentionSettings.read(os.environ)
