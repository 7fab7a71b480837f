"""Names of sources, which keys, documents and dead letters hold: never rename one."""

from typing import Final

EVENT_GRID: Final = "event_grid"
SERVICE_BUS: Final = "service_bus"
SERVICE_BUS_TOPIC: Final = "service_bus_topic"
EVENT_HUBS: Final = "event_hubs"
COSMOS_DB: Final = "cosmos_db"
KAFKA: Final = "kafka"
