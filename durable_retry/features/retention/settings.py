"""App settings of retention."""

import os
from typing import ClassVar

from durable_retry.settings.group import SettingsGroup, days, span_of_days
from durable_retry.settings.retention import Retention


class RetentionSettings(SettingsGroup):
    """How long each kind is kept; 0 days mean for ever."""

    heading: ClassVar[str] = "Retention"

    dead_letter_retention_days: float = days(
        "How long archived dead letters are kept; 0 = for ever. Open ones are kept until a person acts.", 30.0
    )
    history_retention_days: float = days(
        "How long finished orchestrations and batches are kept, from their start; 0 = for ever.", 7.0
    )
    sent_event_retention_days: float = days(
        "How long sent events are kept, from their operation's success; 0 = for ever.", 7.0
    )

    @property
    def kept_for(self) -> Retention:
        """How long each kind is kept."""
        return Retention(
            archived_for=span_of_days(self.dead_letter_retention_days),
            history_for=span_of_days(self.history_retention_days),
            sent_for=span_of_days(self.sent_event_retention_days),
        )


def kept_for() -> Retention:
    """Return what this process's settings say."""
    return RetentionSettings.read(os.environ).kept_for
