"""Azure Tables and storage queues."""
