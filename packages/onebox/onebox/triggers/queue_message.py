"""What a queue-triggered function receives: the message's body, and its properties as trigger metadata."""

import json
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from azure.storage.queue import QueueMessage
from azure_functions_runtime.bindings.datumdef import Datum

from onebox.worker.runner import json_datum, text_datum

_DEFAULT_LIFE = timedelta(days=7)


def body_datum(body: bytes) -> Any:
    """Return the trigger's data: text when the body is UTF-8, else bytes."""
    try:
        return text_datum(body.decode())
    except UnicodeDecodeError:
        return Datum(body, "bytes")


def metadata_of(message: QueueMessage, body: bytes) -> Mapping[str, Any]:
    """Return the trigger metadata of a received message."""
    return _metadata(
        body,
        message_id=message.id,
        dequeue_count=message.dequeue_count or 0,
        pop_receipt=message.pop_receipt or "",
        inserted=message.inserted_on,
        expires=message.expires_on,
        visible=message.next_visible_on,
    )


def manual_metadata(text: str, now: datetime) -> Mapping[str, Any]:
    """Return the trigger metadata of a message that is invented, for a trigger fired by hand."""
    message_id = str(uuid.uuid4())
    return _metadata(
        text.encode(),
        message_id=message_id,
        dequeue_count=1,
        pop_receipt="",
        inserted=now,
        expires=now + _DEFAULT_LIFE,
        visible=now,
    )


def _metadata(
    body: bytes,
    *,
    message_id: str,
    dequeue_count: int,
    pop_receipt: str,
    inserted: datetime | None,
    expires: datetime | None,
    visible: datetime | None,
) -> dict[str, Any]:
    instants = {"InsertionTime": inserted, "ExpirationTime": expires, "NextVisibleTime": visible}
    return {
        **_properties(body),
        "QueueTrigger": body_datum(body),
        "Id": text_datum(message_id),
        "DequeueCount": json_datum(str(dequeue_count)),
        "PopReceipt": text_datum(pop_receipt),
        **{
            name: json_datum(json.dumps(each.isoformat()))
            for name, each in instants.items()
            if each is not None
        },
    }


def _properties(body: bytes) -> dict[str, Any]:
    """Return the top-level properties of a JSON body; the host offers them to binding expressions."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {name: json_datum(json.dumps(value)) for name, value in content.items()}
