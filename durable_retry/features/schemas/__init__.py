"""Schemas: what a request sends as JSON is checked against a JSON Schema before it is accepted."""

from typing import Final

from durable_retry.plugins import Plugin

PLUGIN: Final = Plugin(
    name="schemas",
    dependency="durable_retry.features.schemas.members:SchemaKeys",
    check="durable_retry.features.schemas.schema:problems_of_schemas",
    members="durable_retry.features.schemas.members:MEMBERS",
)
