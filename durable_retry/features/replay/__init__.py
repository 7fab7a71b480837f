"""Replay: dead letters become operations again, as they were or edited."""

from typing import Final

from durable_retry.plugins import Collection, Plugin

PLUGIN: Final = Plugin(
    name="replay",
    collections=(Collection("dead-letters/{*rest}", ("durable_retry.features.replay.routes:routes",)),),
    replay="durable_retry.features.replay.actions",
)
