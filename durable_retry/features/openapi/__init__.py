"""The OpenAPI document: describes every route of the app, also those of other features."""

from typing import Final

from durable_retry.plugins import Collection, Plugin

PLUGIN: Final = Plugin(
    name="openapi",
    collections=(
        Collection("openapi.json", ("durable_retry.features.openapi.routes:routes",), anonymous=True),
    ),
)
