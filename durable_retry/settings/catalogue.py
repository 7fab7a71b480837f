"""Every app setting of this app, by what it is for, in the order of docs/settings.md."""

from typing import Final

from durable_retry.settings.alerts import AlertSettings
from durable_retry.settings.app import AppSettings, RetentionSettings, TelemetrySettings
from durable_retry.settings.callers import CallerSettings
from durable_retry.settings.group import SettingsGroup
from durable_retry.settings.sources import IntakeSettings
from durable_retry.settings.storage_account import StorageSettings

GROUPS: Final[tuple[type[SettingsGroup], ...]] = (
    AppSettings,
    StorageSettings,
    CallerSettings,
    IntakeSettings,
    AlertSettings,
    TelemetrySettings,
    RetentionSettings,
)
