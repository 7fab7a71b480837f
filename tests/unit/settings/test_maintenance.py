from datetime import timedelta

import pytest

from durable_retry.engine.alerts import Thresholds
from durable_retry.settings.app import SettingsError
from durable_retry.settings.maintenance import MaintenanceSettings, Webhook, read_maintenance_settings


def test_without_settings_the_usual_ones_hold() -> None:
    assert read_maintenance_settings({}) == MaintenanceSettings()


def test_every_setting_counts() -> None:
    settings = read_maintenance_settings(
        {
            "ALERT_DEAD_LETTERS": "5",
            "ALERT_DEAD_LETTER_AGE_SECONDS": "60",
            "ALERT_OUTBOX_LAG_SECONDS": "1.5",
            "ALERT_CIRCUIT_OPEN_SECONDS": "0",
            "ALERT_WEBHOOK": "pager:/alerts",
            "DEAD_LETTER_RETENTION_DAYS": "0.5",
            "HISTORY_RETENTION_DAYS": "0",
        }
    )
    assert settings == MaintenanceSettings(
        thresholds=Thresholds(5, 60, 1.5, 0),
        webhook=Webhook("pager", "/alerts"),
        archived_for=timedelta(hours=12),
        history_for=None,
    )


def test_every_mistake_is_reported() -> None:
    with pytest.raises(SettingsError) as refusal:
        read_maintenance_settings(
            {"ALERT_DEAD_LETTERS": "-1", "ALERT_WEBHOOK": "pager", "HISTORY_RETENTION_DAYS": "99999"}
        )
    assert [problem.pointer for problem in refusal.value.problems] == [
        "ALERT_DEAD_LETTERS",
        "ALERT_WEBHOOK",
        "HISTORY_RETENTION_DAYS",
    ]
