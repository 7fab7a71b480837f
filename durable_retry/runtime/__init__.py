"""What the worker process and the SDK give: one event loop, the durable client, a guarded executor."""
