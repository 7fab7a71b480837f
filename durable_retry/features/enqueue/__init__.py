"""Accepting by way of the queue: an operation is put on it, and starts when its turn comes."""

from typing import Final

from durable_retry.plugins import Collection, Plugin

PLUGIN: Final = Plugin(
    name="enqueue",
    collections=(Collection("operations/{*rest}", ("durable_retry.features.enqueue.routes:routes",)),),
)
