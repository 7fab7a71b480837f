"""Azure Tables, queues and their clients."""
