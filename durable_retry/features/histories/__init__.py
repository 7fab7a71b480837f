"""Histories of orchestrations: listed, and replayed against other code before that is deployed."""

from typing import Final

from durable_retry.plugins import Collection, Plugin

PLUGIN: Final = Plugin(
    name="histories",
    collections=(Collection("histories", ("durable_retry.features.histories.routes:routes",)),),
)
