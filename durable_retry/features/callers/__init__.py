"""Who calls: people whom App Service authentication lets in, and named function keys, with their roles."""

from typing import Final

from durable_retry.plugins import Plugin

PLUGIN: Final = Plugin(
    name="callers",
    settings=("durable_retry.features.callers.settings:CallerSettings",),
    callers="durable_retry.features.callers.reading:caller_reader",
)
