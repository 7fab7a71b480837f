"""The task hub: the durable client, instances, and what orchestrators share."""
