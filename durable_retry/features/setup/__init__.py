"""Set-up: makes the queues and tables of the app in its storage account."""

from typing import Final

from durable_retry.plugins import Collection, Plugin

PLUGIN: Final = Plugin(
    name="setup", collections=(Collection("setup", ("durable_retry.features.setup.routes:routes",)),)
)
