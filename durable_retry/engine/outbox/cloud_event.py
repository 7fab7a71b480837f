"""CloudEvents 1.0: the envelope of every event, to queues and to webhooks alike."""

import json
from typing import Any, Final

from durable_retry.engine.base.instants import to_rfc3339
from durable_retry.engine.outbox.delivery import StoredEvent, number_of, operation_id_of

CONTENT_TYPE: Final = "application/cloudevents+json"


def envelope_of(event: StoredEvent) -> dict[str, Any]:
    """Return the envelope of an event; the same for every attempt to send it.

    `source` and `id` together identify the event for receivers that deduplicate. `sequence` (the CloudEvents
    extension of that name) orders the events of one `source`. `traceparent` (the extension "Distributed
    Tracing") is where the operation was submitted; the position of an attempt is in the HTTP header.
    """
    operation_id = operation_id_of(event.event_id)
    envelope: dict[str, Any] = {
        "specversion": "1.0",
        "id": event.event_id,
        "source": f"/api/operations/{operation_id}",
        "type": event.event["type"],
        "time": to_rfc3339(event.created_at),
        "datacontenttype": "application/json",
        "sequence": f"{number_of(event.event_id):04d}",
        "data": event.event.get("data"),
    }
    if event.correlation_id is not None:
        envelope["correlationid"] = event.correlation_id
    return envelope | ({} if event.trace is None else event.trace.to_json())


def envelope_text(event: StoredEvent) -> str:
    """Return the envelope as the JSON text that is sent: the same bytes for every attempt."""
    return json.dumps(envelope_of(event), separators=(",", ":"), ensure_ascii=False)
