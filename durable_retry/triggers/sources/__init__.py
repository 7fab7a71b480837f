"""Event sources: queues, Service Bus, Event Grid, Event Hubs, Cosmos DB, Kafka."""
