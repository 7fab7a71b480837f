"""Preview: what a retry policy would do, before anything uses it."""

from typing import Final

from durable_retry.plugins import Collection, Plugin

PLUGIN: Final = Plugin(
    name="preview",
    collections=(Collection("policies/{*rest}", ("durable_retry.features.preview.routes:routes",)),),
)
