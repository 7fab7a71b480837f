"""What the app is configured with, in a list: its dependencies."""

from typing import Final

from durable_retry.plugins import Collection, Plugin

_ROUTES: Final = ("durable_retry.features.listing.routes:routes",)

PLUGIN: Final = Plugin(name="listing", collections=(Collection("dependencies", _ROUTES),))
