"""What Service Bus, Event Hubs and Kafka triggers hand to their functions, made up for one fired by hand.

The metadata has the names and shapes in which `azure-functions` reads it: one value each for a single
message, an array of values for a batch.
"""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from azure_functions_runtime.bindings.datumdef import Datum

from onebox.worker.functions import Binding, Function
from onebox.worker.runner import json_datum, text_datum

Properties = dict[str, Any]


def event_data(
    function: Function, text: str, now: datetime, told: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]] | None:
    """Return a trigger's data and metadata; None when it is not one of the three.

    Args:
        function: Whose trigger.
        text: The message; for a batch, a JSON array with an item per message.
        now: When it is said to have been enqueued.
        told: Metadata to use in place of what would be made up, by name.
    """
    made_up = _MADE_UP.get(function.trigger.type)
    if made_up is None:
        return None
    many = str(function.trigger.properties.get("cardinality", "")).lower() == "many"
    texts = _items(text) if many else [text]
    properties = [{**made_up(function.trigger, number, now), **told} for number in range(len(texts))]
    if many:
        return Datum(SimpleNamespace(string=texts), "collection_string"), _arrays(properties)
    return text_datum(text), {name: json_datum(json.dumps(value)) for name, value in properties[0].items()}


def _items(text: str) -> list[str]:
    """Split a batch; what is no JSON array is a batch of one."""
    try:
        content = json.loads(text)
    except ValueError:
        return [text]
    if not isinstance(content, list):
        return [text]
    return [item if isinstance(item, str) else json.dumps(item) for item in content]


def _arrays(properties: Sequence[Properties]) -> dict[str, Any]:
    names = properties[0].keys() if properties else ()
    return {f"{name}Array": _array(name, [each[name] for each in properties]) for name in names}


def _array(name: str, values: list[Any]) -> Any:
    # Kafka's offsets and topics travel as typed collections, everything else as JSON.
    if name == "Offset" and all(isinstance(value, int) for value in values):
        return Datum(SimpleNamespace(sint64=values), "collection_sint64")
    if name == "Topic":
        return Datum(SimpleNamespace(string=values), "collection_string")
    return json_datum(json.dumps(values))


def _service_bus(_: Binding, number: int, now: datetime) -> Properties:
    return {
        "MessageId": str(uuid.uuid4()),
        "SequenceNumber": number,
        "EnqueuedTimeUtc": now.isoformat(),
        "DeliveryCount": 1,
        "LockToken": str(uuid.uuid4()),
        "ApplicationProperties": {},
        "UserProperties": {},
    }


def _event_hub(_: Binding, number: int, now: datetime) -> Properties:
    place = {
        "EnqueuedTimeUtc": now.isoformat(),
        "PartitionKey": "0",
        "SequenceNumber": number,
        "Offset": str(number),
    }
    return {**place, "PartitionContext": {"PartitionId": "0"}, "Properties": {}, "SystemProperties": place}


def _kafka(binding: Binding, number: int, now: datetime) -> Properties:
    return {
        "Topic": binding.text("topic") or "topic",
        "Partition": 0,
        "Offset": number,
        "Timestamp": now.isoformat(),
        "Key": None,
        "Headers": [],
    }


_MADE_UP: Mapping[str, Callable[[Binding, int, datetime], Properties]] = {
    "serviceBusTrigger": _service_bus,
    "eventHubTrigger": _event_hub,
    "kafkaTrigger": _kafka,
}
