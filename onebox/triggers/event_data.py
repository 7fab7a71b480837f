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

_ARRAY = "Array"
_OF_THE_BATCH = frozenset({"PartitionContext"})


def event_data(
    function: Function, text: str, now: datetime, told: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]] | None:
    """Return a trigger's data and metadata; None when it is not one of the three.

    Args:
        function: Whose trigger.
        text: The message; for a batch, a JSON array with an item per message.
        now: When it is said to have been enqueued.
        told: Metadata to use in place of what would be made up, by name; for a batch also a list with a value
            per message, under the name that the host gives it, like SequenceNumberArray.
    """
    made_up = _MADE_UP.get(function.trigger.type)
    if made_up is None:
        return None
    many = str(function.trigger.properties.get("cardinality", "")).lower() == "many"
    texts = _items(text) if many else [text]
    properties = [{**made_up(function.trigger, number, now), **told} for number in range(len(texts))]
    binary = str(function.trigger.properties.get("dataType", "")).lower() == "binary"
    if many:
        lists = {name: value for name, value in told.items() if name.endswith(_ARRAY)}
        return _collection(texts, binary=binary), _arrays(properties, lists)
    data = Datum(text.encode(), "bytes") if binary else text_datum(text)
    return data, {name: json_datum(json.dumps(value)) for name, value in properties[0].items()}


def _collection(texts: Sequence[str], *, binary: bool) -> Any:
    if binary:
        return Datum(SimpleNamespace(bytes=[text.encode() for text in texts]), "collection_bytes")
    return Datum(SimpleNamespace(string=list(texts)), "collection_string")


def _items(text: str) -> list[str]:
    """Split a batch; what is no JSON array is a batch of one."""
    try:
        content = json.loads(text)
    except ValueError:
        return [text]
    if not isinstance(content, list):
        return [text]
    return [item if isinstance(item, str) else json.dumps(item) for item in content]


def _arrays(properties: Sequence[Properties], lists: Mapping[str, Any]) -> dict[str, Any]:
    names = [name for name in (properties[0] if properties else ()) if not name.endswith(_ARRAY)]
    per_message = {f"{name}{_ARRAY}": [each[name] for each in properties] for name in names}
    # A batch comes from one partition, which is told once.
    whole = {name: per_message.pop(f"{name}{_ARRAY}")[0] for name in _OF_THE_BATCH if name in names}
    return {
        **{name: json_datum(json.dumps(value)) for name, value in whole.items()},
        **{name: _array(name, values) for name, values in {**per_message, **lists}.items()},
    }


def _array(name: str, values: list[Any]) -> Any:
    # Kafka's offsets and topics travel as typed collections, everything else as JSON.
    if name == "OffsetArray" and all(isinstance(value, int) for value in values):
        return Datum(SimpleNamespace(sint64=values), "collection_sint64")
    if name == "TopicArray":
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
