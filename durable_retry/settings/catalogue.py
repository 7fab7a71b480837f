"""Every app setting of this app, by what it is for, in the order of docs/settings.md."""

from functools import cache

from durable_retry.plugins import plugins
from durable_retry.runtime.deferred import imported
from durable_retry.settings.app import AppSettings
from durable_retry.settings.group import SettingsGroup
from durable_retry.settings.intake import IntakeSettings
from durable_retry.settings.storage_account import StorageSettings


@cache
def groups() -> tuple[type[SettingsGroup], ...]:
    return (AppSettings, StorageSettings, IntakeSettings, *groups_of_plugins())


def groups_of_plugins() -> tuple[type[SettingsGroup], ...]:
    return tuple(imported(reference) for plugin in plugins() for reference in plugin.settings)
