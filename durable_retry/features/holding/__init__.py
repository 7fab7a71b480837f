"""Holding: an operation without attempts or time left is paused, in place of its dead letter."""

from typing import Final

from durable_retry.plugins import Plugin

PLUGIN: Final = Plugin(
    name="holding",
    of_core=("retry.on_exhausted",),
    exhausted="holding",
    look="durable_retry.features.holding.look:HeldLook",
)
