"""Triggers other than HTTP and durable ones: what starts a function, with which data, and when again.

Owns the polling of queues, the timers and their stored status, Event Grid's webhook, and firing by hand.

- `queue_trigger`: one listener per queue function, with peek-lock: a message is received (hidden), then
  deleted, shown again, or moved to the poison queue.
- `timer`: one task per timer, NCRONTAB or TimeSpan; missed due times run at start.
- `event_grid`: the webhook with both handshakes.
- `manual`: `POST /admin/functions/{name}` with invented metadata, the only source for Service Bus, Event
  Hubs, Kafka and Cosmos DB.
- `retrying`: the runtime's retry policies, counted in memory; the growing pauses that polling uses too.

Main path: a trigger builds the trigger's data and metadata, the worker's `Runner` runs the function,
`Outputs` sends its outputs. What follows a failed run (`FunctionFailedError`) is the trigger's decision:
retry, show the message again, or log. A trigger that cannot reach its service warns once and goes on
trying. The host calls `start()` and `stop(seconds)`.

Errors at start: `CannotStartError` for a malformed schedule, a missing setting or a bad connection string.
"""
