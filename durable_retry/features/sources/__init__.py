"""Messages and streams that start operations: Event Grid, Service Bus, Event Hubs, Cosmos DB, Kafka."""

from typing import Final

from durable_retry.plugins import Plugin

PLUGIN: Final = Plugin(
    name="sources",
    settings=("durable_retry.features.sources.settings:SourceSettings",),
    sources="durable_retry.features.sources.triggers:SOURCES",
)
