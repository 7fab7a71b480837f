"""Triggers fired by hand, through `POST /admin/functions/{name}`: the service behind them need not exist.

Messages of Service Bus, Event Hubs and Kafka get invented metadata, in the names and shapes in which
`azure-functions` reads it: one value each for a single message, an array of values for a batch.
"""

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from azure_functions_runtime.bindings.datumdef import Datum

from onebox.clock import Clock
from onebox.environment import AppSettings
from onebox.triggers.queue_message import manual_metadata
from onebox.triggers.retrying import RetryingRunner
from onebox.triggers.timer import timer_datum
from onebox.worker.durable import BindingInputs
from onebox.worker.functions import (
    ENTITY_TRIGGER,
    ORCHESTRATION_TRIGGER,
    QUEUE_TRIGGER,
    TIMER_TRIGGER,
    Function,
)
from onebox.worker.runner import json_datum, text_datum

# These take protobuf messages that only the task hub can write.
_HUB_ONLY = {ORCHESTRATION_TRIGGER, ENTITY_TRIGGER}


Properties = dict[str, Any]
_ARRAY = "Array"
_OF_THE_BATCH = frozenset({"PartitionContext"})


class ManualTriggers:
    """Runs a function as though its trigger had fired."""

    def __init__(
        self, retrying: RetryingRunner, inputs: BindingInputs, clock: Clock, settings: AppSettings
    ) -> None:
        self._retrying = retrying
        self._inputs = inputs
        self._clock = clock
        self._settings = settings

    def prepare(
        self, function: Function, given: Any, properties: Mapping[str, Any]
    ) -> Callable[[], Awaitable[None]] | None:
        """Return a call that runs the function; None when its trigger cannot be fired by hand.

        Args:
            function: The function to run.
            given: The `input` of the request: text, or JSON, which reaches the function as JSON text.
            properties: The `metadata` of the request, which the host does not offer: properties of the
                message, such as MessageId, in place of invented ones.
        """
        if function.trigger.type in _HUB_ONLY:
            return None
        text = given if isinstance(given, str) else json.dumps(given)
        datum, metadata = self._data(function, text, properties)

        async def run() -> None:
            inputs = [(function.trigger.name, datum), *self._inputs.of(function)]
            await self._retrying.run(function, inputs, metadata, reason="fired by hand")

        return run

    def _data(
        self, function: Function, text: str, properties: Mapping[str, Any]
    ) -> tuple[Any, Mapping[str, Any]]:
        now = self._clock.now()
        match function.trigger.type:
            case kind if kind == QUEUE_TRIGGER:
                return text_datum(text), manual_metadata(text, now)
            case kind if kind == TIMER_TRIGGER:
                return timer_datum(last=None, next_due=None, last_updated=None, past_due=False), {}
        event = event_data(function, text, now, {**self._topic_of(function), **properties})
        return event or ((json_datum(text) if _is_json(text) else text_datum(text)), {})

    def _topic_of(self, function: Function) -> dict[str, str]:
        """Return the topic of a Kafka trigger, which its messages name."""
        topic = function.trigger.text("topic")
        where = f"function {function.name}, topic"
        return {} if topic is None else {"Topic": self._settings.expand(topic, where=where)}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def event_data(
    function: Function, text: str, now: datetime, metadata: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]] | None:
    """Return the data and metadata of a Service Bus, Event Hubs or Kafka trigger; None for another one.

    Args:
        function: The function that has the trigger.
        text: The message; for a batch, a JSON array with an item per message.
        now: The enqueued time to claim.
        metadata: Properties by name, in place of invented ones; for a batch also a list with a value per
            message, under the name that the host gives it, such as SequenceNumberArray.
    """
    invent = _PROPERTIES.get(function.trigger.type)
    if invent is None:
        return None
    many = str(function.trigger.properties.get("cardinality", "")).lower() == "many"
    texts = _items(text) if many else [text]
    properties = [{**invent(number, now), **metadata} for number in range(len(texts))]
    binary = str(function.trigger.properties.get("dataType", "")).lower() == "binary"
    if many:
        lists = {name: value for name, value in metadata.items() if name.endswith(_ARRAY)}
        return _collection(texts, binary=binary), _arrays(properties, lists)
    data = Datum(text.encode(), "bytes") if binary else text_datum(text)
    return data, {name: json_datum(json.dumps(value)) for name, value in properties[0].items()}


def _collection(texts: Sequence[str], *, binary: bool) -> Any:
    if binary:
        return Datum(SimpleNamespace(bytes=[text.encode() for text in texts]), "collection_bytes")
    return Datum(SimpleNamespace(string=list(texts)), "collection_string")


def _items(text: str) -> list[str]:
    """Split a batch; a text that is no JSON array is a batch of one."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    if not isinstance(content, list):
        return [text]
    return [item if isinstance(item, str) else json.dumps(item) for item in content]


def _arrays(properties: Sequence[Properties], lists: Mapping[str, Any]) -> dict[str, Any]:
    names = [name for name in (properties[0] if properties else ()) if not name.endswith(_ARRAY)]
    per_message = {f"{name}{_ARRAY}": [each[name] for each in properties] for name in names}
    # A batch comes from one partition, so there is one value for all of it.
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


def _service_bus(number: int, now: datetime) -> Properties:
    return {
        "MessageId": str(uuid.uuid4()),
        "SequenceNumber": number,
        "EnqueuedTimeUtc": now.isoformat(),
        "DeliveryCount": 1,
        "LockToken": str(uuid.uuid4()),
        "ApplicationProperties": {},
        "UserProperties": {},
    }


def _event_hub(number: int, now: datetime) -> Properties:
    place = {
        "EnqueuedTimeUtc": now.isoformat(),
        "PartitionKey": "0",
        "SequenceNumber": number,
        "Offset": str(number),
    }
    return {**place, "PartitionContext": {"PartitionId": "0"}, "Properties": {}, "SystemProperties": place}


def _kafka(number: int, now: datetime) -> Properties:
    return {
        "Topic": "topic",
        "Partition": 0,
        "Offset": number,
        "Timestamp": now.isoformat(),
        "Key": None,
        "Headers": [],
    }


_PROPERTIES: Mapping[str, Callable[[int, datetime], Properties]] = {
    "serviceBusTrigger": _service_bus,
    "eventHubTrigger": _event_hub,
    "kafkaTrigger": _kafka,
}
