"""The durable client: instances, entities and events in the task hub."""
