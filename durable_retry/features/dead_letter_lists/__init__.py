"""Dead letters in lists, by filters and words, and in numbers."""

from typing import Final

from durable_retry.plugins import Collection, Plugin

PLUGIN: Final = Plugin(
    name="dead_letter_lists",
    collections=(
        Collection("dead-letters/{*rest}", ("durable_retry.features.dead_letter_lists.routes:routes",)),
    ),
)
