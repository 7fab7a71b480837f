"""Batches of one partition: Event Hubs, Kafka, the Cosmos DB change feed. Each entry is an operation.

A partition waits until its batch is accepted; the platform repeats a batch that was not (`platform_retries`).
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, List  # noqa: UP035 - see the triggers' parameters

import azure.functions as func

from durable_retry.engine.base.foreign import read_json
from durable_retry.engine.base.trace_context import trace_in
from durable_retry.engine.base.validation import InvalidInputError, pointed_at
from durable_retry.engine.sources import Arrival
from durable_retry.runtime.binding import TaskHub, bind_hub
from durable_retry.services.sources import intake
from durable_retry.settings.sources import IntakeSettings
from durable_retry.triggers.sources.platform_retries import RetriedBlueprint, accept_batch

EVENT_HUBS: Final = "event_hubs"
KAFKA: Final = "kafka"
COSMOS_DB: Final = "cosmos_db"

# Members that the service adds to each document.
_OF_COSMOS_DB: Final = frozenset({"id", "ttl", "_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"})


def event_hubs_blueprint(max_retries: int, consumer_group: str) -> RetriedBlueprint:
    """Return the blueprint of Event Hubs."""
    blueprint = RetriedBlueprint()
    trigger = blueprint.event_hub_message_trigger(
        arg_name="events",
        event_hub_name=IntakeSettings.reference_to("event_hub"),
        connection=IntakeSettings.name_of("event_hub_connection"),
        consumer_group=consumer_group,
        cardinality=func.Cardinality.MANY,
        data_type=func.DataType.BINARY,
    )
    blueprint.retry_growing(trigger(bind_hub(blueprint)(operations_event_hubs)), max_retries)
    return blueprint


async def operations_event_hubs(
    events: List[func.EventHubEvent],  # noqa: UP006 - the worker does not take list[...] for a batch
    context: func.Context,
    hub: TaskHub,
) -> None:
    """Start the operations that a batch of events holds."""
    place = intake().settings.places.get(EVENT_HUBS, "")
    await accept_batch(hub, list(event_hubs_arrivals(events, place)), context)


def event_hubs_arrivals(events: Sequence[func.EventHubEvent], place: str) -> Iterator[Arrival]:
    """Read a batch of one event hub; an event is named by its partition and its sequence number."""
    for position, event in enumerate(events):
        metadata = event.metadata or {}
        partition, number = _event_hubs_partition(metadata), event.sequence_number
        if number is None:
            number = _item_at(metadata.get("SequenceNumberArray"), position)
        yield Arrival(
            source=EVENT_HUBS,
            body=event.get_body(),
            place=place,
            native_id="" if number is None else f"{partition}-{number}",
            partition=partition,
            may_be_left=True,
            trace=trace_in(_item_at(metadata.get("PropertiesArray"), position)),
        )


def _event_hubs_partition(metadata: Any) -> str:
    context = metadata.get("PartitionContext")
    partition = context.get("PartitionId") if isinstance(context, dict) else None
    return "" if partition is None else str(partition)


def _item_at(values: Any, position: int) -> Any:
    return values[position] if isinstance(values, list) and position < len(values) else None


def kafka_blueprint(max_retries: int, options: dict[str, Any]) -> RetriedBlueprint:
    """Return the blueprint of Kafka.

    The values are asked for as bytes: as text the host would wrap each in a JSON object of its own.
    Source: `KafkaEventDataConvertManager` of the Functions Kafka extension.

    Args:
        options: Further properties of the trigger, such as `consumer_group` and how to authenticate.
    """
    blueprint = RetriedBlueprint()
    trigger = blueprint.kafka_trigger(
        arg_name="events",
        topic=IntakeSettings.reference_to("kafka_topic"),
        broker_list=IntakeSettings.reference_to("kafka_brokers"),
        cardinality=func.Cardinality.MANY,
        data_type=func.DataType.BINARY,
        **options,
    )
    blueprint.retry_growing(trigger(bind_hub(blueprint)(operations_kafka)), max_retries)
    return blueprint


async def operations_kafka(
    events: List[func.KafkaEvent],  # noqa: UP006 - the worker does not take list[...] for a batch
    context: func.Context,
    hub: TaskHub,
) -> None:
    """Start the operations that a batch of events of one topic holds."""
    await accept_batch(hub, list(kafka_arrivals(events)), context)


def kafka_arrivals(events: Sequence[func.KafkaEvent]) -> Iterator[Arrival]:
    """Read a batch; an event is named by its topic, its partition and its offset."""
    for event in events:
        named = None not in (event.partition, event.offset)
        yield Arrival(
            source=KAFKA,
            body=event.get_body() or b"",  # None: a deletion, in a compacted topic
            place=event.topic or IntakeSettings.reference_to("kafka_topic"),
            native_id=f"{event.topic}-{event.partition}-{event.offset}" if named else "",
            partition="" if event.partition is None else str(event.partition),
            may_be_left=True,
            trace=trace_in(dict(_kafka_headers(event.headers))),
        )


def _kafka_headers(headers: Any) -> Iterator[tuple[str, str]]:
    # The extension gives each as a name and its bytes in base64.
    for header in headers or ():
        with suppress(KeyError, TypeError, ValueError):  # not of that form, or no text
            yield header["Key"], base64.b64decode(header["Value"]).decode()


def cosmos_db_blueprint(max_retries: int, lease_container: str) -> RetriedBlueprint:
    """Return the blueprint of the Cosmos DB change feed; a range of the container is its partition."""
    blueprint = RetriedBlueprint()
    trigger = blueprint.cosmos_db_trigger(
        arg_name="documents",
        database_name=IntakeSettings.reference_to("cosmos_database"),
        container_name=IntakeSettings.reference_to("cosmos_container"),
        connection=IntakeSettings.name_of("cosmos_connection"),
        lease_container_name=lease_container,
        create_lease_container_if_not_exists=True,
    )
    blueprint.retry_growing(trigger(bind_hub(blueprint)(operations_cosmos_db)), max_retries)
    return blueprint


async def operations_cosmos_db(documents: str, context: func.Context, hub: TaskHub) -> None:
    """Start the operations that a batch of changed documents holds.

    The parameter is the batch's own JSON text, so that a document that is none does not fail its neighbours.
    """
    settings = intake().settings
    place = settings.places.get(COSMOS_DB, "")
    await accept_batch(hub, list(cosmos_db_arrivals(documents, place, settings.cosmos_operation)), context)


def cosmos_db_arrivals(documents: str, place: str, pointer: str) -> Iterator[Arrival]:
    """Read a batch; a change is named by its document's `id` and the `_etag` that the change gave it.

    Args:
        pointer: The pointer of the operation in each document (setting COSMOS_OPERATION); "" is the document
            itself, without `id` and what the service adds.
    """
    for text, native_id, partition in _changes_in(documents, pointer):
        yield Arrival(
            source=COSMOS_DB,
            body=text.encode(errors="surrogatepass"),
            place=place,
            native_id=native_id,
            partition=partition,
            may_be_left=True,
        )


def _changes_in(documents: str, pointer: str) -> list[tuple[str, str, str]]:
    """Return text, id and partition of each change; what is no JSON, or nests without end, stays whole."""
    try:
        changes = read_json(documents)
        return [
            (json.dumps(_operation_in(document, pointer)), *_change_name(document))
            for document in (changes if isinstance(changes, list) else [changes])
        ]
    except (InvalidInputError, RecursionError):
        return [(documents, "", "")]


def _operation_in(document: Any, pointer: str) -> Any:
    # None, where the pointer leads nowhere, fails validation.
    if pointer:
        inside = pointed_at(document, pointer)
        return inside[0] if inside else None
    if not isinstance(document, Mapping) or "specversion" in document:
        return document
    return {name: value for name, value in document.items() if name not in _OF_COSMOS_DB}


def _change_name(document: Any) -> tuple[str, str]:
    """Return a change's id, and the document's, in whose changes there is an order."""
    if not isinstance(document, Mapping) or not document.get("id") or not document.get("_etag"):
        return "", ""
    return f"{document['id']}-{str(document['_etag']).strip('"')}", str(document["id"])
