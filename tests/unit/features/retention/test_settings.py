from datetime import timedelta

import pytest

from durable_retry.features.retention.settings import RetentionSettings
from durable_retry.settings.group import SettingsError


def test_the_usual_spans_hold_without_settings() -> None:
    settings = RetentionSettings.read({}).kept_for
    week, month = timedelta(days=7), timedelta(days=30)
    spans = (settings.archived_for, settings.history_for, settings.sent_for)
    assert spans == (month, week, week)


def test_parts_of_a_day_count_and_zero_is_for_ever() -> None:
    settings = RetentionSettings.read({"DEAD_LETTER_RETENTION_DAYS": "0.5", "HISTORY_RETENTION_DAYS": "0"})
    kept = settings.kept_for
    assert (kept.archived_for, kept.history_for) == (timedelta(hours=12), None)


def test_more_than_a_century_is_refused() -> None:
    with pytest.raises(SettingsError, match="HISTORY_RETENTION_DAYS: must be a number of at least 0 and at"):
        RetentionSettings.read({"HISTORY_RETENTION_DAYS": "99999"})
