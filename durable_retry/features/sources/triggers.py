"""Messages and streams: Service Bus, Event Grid, Event Hubs, Kafka, the Cosmos DB change feed.

A message is done once it is an operation or a dead letter of the app. When the app's own storage or task hub
fails, the function raises, and the source delivers the message again, as often as that source does. Event
Hubs, Kafka and the Cosmos DB change feed have batches of one partition, which waits until its batch is
accepted; the platform repeats a batch that was not (`hub.platform_retries`).
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, List  # noqa: UP035 - see the triggers' parameters

import azure.durable_functions as df
import azure.functions as func

from durable_retry.base.documents import read_json
from durable_retry.base.names import DeadLetterReason
from durable_retry.base.trace_context import trace_in
from durable_retry.base.validation import InvalidInputError, pointed_at
from durable_retry.features.sources.names import (
    COSMOS_DB,
    EVENT_GRID,
    EVENT_HUBS,
    KAFKA,
    SERVICE_BUS,
    SERVICE_BUS_TOPIC,
)
from durable_retry.features.sources.settings import (
    REQUIREMENTS,
    SourceSettings,
    check_lock,
    source_settings,
)
from durable_retry.hub.binding import TaskHub, bind_hub
from durable_retry.hub.platform_retries import RetriedBlueprint
from durable_retry.intake.intake import Refusal, accept_batch, intake, keep_refused
from durable_retry.plugins import Source
from durable_retry.rules.dead_letters.record import Deliveries
from durable_retry.rules.intake import Arrival, host_instant
from durable_retry.settings.intake import intake_settings

event_grid_blueprint = df.Blueprint()

# Deliveries that may be given back, of 10 that a queue grants by default: the others are for failures.
_FREE_DELIVERIES: Final = 3


_DEAD_LETTERS: Final = "/$deadletterqueue"


def service_bus_blueprint(settings: SourceSettings) -> df.Blueprint:
    """Return the blueprint of a Service Bus queue.

    Raises:
        SettingsError: A delivery may wait for longer than the host keeps its lock.
    """
    blueprint, queue = df.Blueprint(), SourceSettings.reference_to("service_bus_queue")

    def trigger(below: str, **options: Any) -> Callable[[Any], Any]:
        return blueprint.service_bus_queue_trigger(queue_name=f"{queue}{below}", **options)

    take = bind_hub(blueprint)(operations_service_bus)
    _receive(trigger, settings, take, dead_letters_service_bus)
    return blueprint


def service_bus_topic_blueprint(settings: SourceSettings) -> df.Blueprint:
    """Return the blueprint of a subscription to a Service Bus topic; as `service_bus_blueprint`."""
    blueprint, subscription = df.Blueprint(), SourceSettings.reference_to("service_bus_subscription")
    topic = SourceSettings.reference_to("service_bus_topic")

    def trigger(below: str, **options: Any) -> Callable[[Any], Any]:
        name = f"{subscription}{below}"
        return blueprint.service_bus_topic_trigger(topic_name=topic, subscription_name=name, **options)

    take = bind_hub(blueprint)(operations_service_bus_topic)
    _receive(trigger, settings, take, dead_letters_service_bus_topic)
    return blueprint


def _receive(
    trigger: Callable[..., Callable[[Any], Any]],
    settings: SourceSettings,
    take: Callable[..., Any],
    keep: Callable[..., Any],
) -> None:
    """Declare the function that takes messages, and where wanted the one for the dead-letter queue.

    A receiver reads either queues with sessions or queues without; a dead-letter queue has none.
    """
    check_lock()
    declared = partial(
        trigger,
        arg_name="message",
        connection=SourceSettings.name_of("service_bus_connection"),
        data_type=func.DataType.BINARY,
    )
    declared("", is_sessions_enabled=settings.service_bus_sessions == "true")(take)
    if settings.service_bus_dead_letters == "true":
        declared(_DEAD_LETTERS, is_sessions_enabled=False)(keep)


async def operations_service_bus(message: func.ServiceBusMessage, hub: TaskHub) -> None:
    """Start the operation that a message of a Service Bus queue holds.

    Why a malformed one is not settled into the queue's own dead letters: docs/decisions/wrong-messages.md.
    """
    await intake().accept(hub, service_bus_arrival(SERVICE_BUS, message))


async def operations_service_bus_topic(message: func.ServiceBusMessage, hub: TaskHub) -> None:
    """Start the operation that a message of a Service Bus subscription holds."""
    await intake().accept(hub, service_bus_arrival(SERVICE_BUS_TOPIC, message))


async def dead_letters_service_bus(message: func.ServiceBusMessage) -> None:
    """Keep a message that a Service Bus queue gave up as a dead letter."""
    await keep_given_up(SERVICE_BUS, message)


async def dead_letters_service_bus_topic(message: func.ServiceBusMessage) -> None:
    """Keep a message that a Service Bus subscription gave up as a dead letter."""
    await keep_given_up(SERVICE_BUS_TOPIC, message)


def service_bus_arrival(source: str, message: func.ServiceBusMessage) -> Arrival:
    """Read a message of a queue or a subscription."""
    deliveries = message.delivery_count or 1
    return Arrival(
        source=source,
        body=message.get_body(),
        place=source_settings().places.get(source, ""),
        native_id=message.message_id or "",
        partition=message.session_id or "",
        may_be_left=deliveries <= _FREE_DELIVERIES,
        deliveries=deliveries,
        trace=trace_in(message.application_properties),
    )


async def keep_given_up(source: str, message: func.ServiceBusMessage) -> None:
    """Keep a message of a dead-letter queue, with what Service Bus says of it.

    Raises:
        azure.core.exceptions.AzureError: It could not be kept; a dead-letter queue delivers without end.
    """
    reasons = (message.dead_letter_reason, message.dead_letter_error_description)
    why = ": ".join(filter(None, ("Service Bus gave it up", *reasons)))
    # The present delivery is that of the dead-letter queue.
    deliveries = Deliveries((message.delivery_count or 1) - 1, host_instant(message.enqueued_time_utc))
    refusal = Refusal(DeadLetterReason.POISON_MESSAGE, why)
    await keep_refused(service_bus_arrival(source, message), refusal, deliveries)


@event_grid_blueprint.event_grid_trigger(arg_name="event")
@bind_hub(event_grid_blueprint)
async def operations_event_grid(event: str, hub: TaskHub) -> None:
    """Start the operation that an event holds, in the CloudEvents or the Event Grid schema.

    The parameter is the event's own JSON text: the binding's typed form cannot read what is not an object,
    and fails before any code of ours runs. Event Grid itself delivers again, for a day, what fails here.
    """
    await intake().accept(hub, Arrival(source=EVENT_GRID, body=event.encode(errors="surrogatepass")))


# Members that the service adds to each document.
_COSMOS_DB_MEMBERS: Final = frozenset({"id", "ttl", "_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"})


def _retry_growing(blueprint: RetriedBlueprint, function: Any) -> None:
    """Let the host repeat a failed batch after growing pauses, while its partition waits."""
    blueprint.retry(
        strategy="exponential_backoff",
        max_retry_count=str(intake_settings().intake_retries),
        minimum_interval="00:00:02",
        maximum_interval="00:02:00",
    )(function)


def event_hubs_blueprint(settings: SourceSettings) -> RetriedBlueprint:
    """Return the blueprint of Event Hubs."""
    blueprint = RetriedBlueprint()
    trigger = blueprint.event_hub_message_trigger(
        arg_name="events",
        event_hub_name=SourceSettings.reference_to("event_hub"),
        connection=SourceSettings.name_of("event_hub_connection"),
        consumer_group=settings.event_hub_consumer_group,
        cardinality=func.Cardinality.MANY,
        data_type=func.DataType.BINARY,
    )
    _retry_growing(blueprint, trigger(bind_hub(blueprint)(operations_event_hubs)))
    return blueprint


async def operations_event_hubs(
    events: List[func.EventHubEvent],  # noqa: UP006 - the worker does not take list[...] for a batch
    context: func.Context,
    hub: TaskHub,
) -> None:
    """Start the operations that a batch of events holds."""
    await accept_batch(hub, list(event_hubs_arrivals(events, source_settings().event_hub)), context)


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


def kafka_blueprint(settings: SourceSettings) -> RetriedBlueprint:
    """Return the blueprint of Kafka.

    The values are asked for as bytes: as text the host would wrap each in a JSON object of its own.
    Source: `KafkaEventDataConvertManager` of the Functions Kafka extension.
    """
    blueprint = RetriedBlueprint()
    trigger = blueprint.kafka_trigger(
        arg_name="events",
        topic=SourceSettings.reference_to("kafka_topic"),
        broker_list=SourceSettings.reference_to("kafka_brokers"),
        cardinality=func.Cardinality.MANY,
        data_type=func.DataType.BINARY,
        **_kafka_options(settings),
    )
    _retry_growing(blueprint, trigger(bind_hub(blueprint)(operations_kafka)))
    return blueprint


_KAFKA_SECRETS: Final = ("consumer_group", "username", "password")
# Optional properties of the trigger: those that it reads itself, and those with a few allowed values.
_KAFKA_CHOICES: Final = {"protocol": "kafka_protocol", "authentication_mode": "kafka_authentication"}


def _kafka_options(settings: SourceSettings) -> dict[str, Any]:
    # The trigger reads its settings itself, so that a password stays out of the function's metadata.
    read = {
        option: settings.reference_to(f"kafka_{option}")
        for option in _KAFKA_SECRETS
        if getattr(settings, f"kafka_{option}")
    }
    chosen = {option: getattr(settings, field) for option, field in _KAFKA_CHOICES.items()}
    return read | {option: word for option, word in chosen.items() if word}


async def operations_kafka(
    events: List[func.KafkaEvent],  # noqa: UP006 - the worker does not take list[...] for a batch
    context: func.Context,
    hub: TaskHub,
) -> None:
    """Start the operations that a batch of events of one topic holds."""
    await accept_batch(hub, list(kafka_arrivals(events, source_settings().kafka_topic)), context)


def kafka_arrivals(events: Sequence[func.KafkaEvent], topic: str) -> Iterator[Arrival]:
    """Read a batch of one topic; an event is named by its topic, its partition and its offset."""
    for event in events:
        place = event.topic or topic
        named = None not in (event.partition, event.offset)
        yield Arrival(
            source=KAFKA,
            body=event.get_body() or b"",  # None: a deletion, in a compacted topic
            place=place,
            native_id=f"{place}-{event.partition}-{event.offset}" if named else "",
            partition="" if event.partition is None else str(event.partition),
            may_be_left=True,
            trace=trace_in(dict(_kafka_headers(event.headers))),
        )


def _kafka_headers(headers: Any) -> Iterator[tuple[str, str]]:
    # The extension gives each as a name and its bytes in base64.
    for header in headers or ():
        with suppress(KeyError, TypeError, ValueError):  # not of that form, or no text
            yield header["Key"], base64.b64decode(header["Value"]).decode()


def cosmos_db_blueprint(settings: SourceSettings) -> RetriedBlueprint:
    """Return the blueprint of the Cosmos DB change feed; a range of the container is its partition."""
    blueprint = RetriedBlueprint()
    trigger = blueprint.cosmos_db_trigger(
        arg_name="documents",
        database_name=SourceSettings.reference_to("cosmos_database"),
        container_name=SourceSettings.reference_to("cosmos_container"),
        connection=SourceSettings.name_of("cosmos_connection"),
        lease_container_name=settings.cosmos_lease_container,
        create_lease_container_if_not_exists=True,
    )
    _retry_growing(blueprint, trigger(bind_hub(blueprint)(operations_cosmos_db)))
    return blueprint


async def operations_cosmos_db(documents: str, context: func.Context, hub: TaskHub) -> None:
    """Start the operations that a batch of changed documents holds.

    The parameter is the batch's own JSON text, so that a malformed document does not fail the others.
    """
    settings = source_settings()
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
    """Return text, id and partition of each change; a batch that is no JSON, or too deep, stays whole."""
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
    return {name: value for name, value in document.items() if name not in _COSMOS_DB_MEMBERS}


def _change_name(document: Any) -> tuple[str, str]:
    """Return the id of a change, and that of its document, whose changes are in order."""
    if not isinstance(document, Mapping) or not document.get("id") or not document.get("_etag"):
        return "", ""
    return f"{document['id']}-{str(document['_etag']).strip('"')}", str(document["id"])


def _source(name: str, blueprint: Callable[[SourceSettings], df.Blueprint]) -> Source:
    """Return a source that is there when its settings are."""

    def place() -> str | None:
        return source_settings().places.get(name)

    def make() -> df.Blueprint | None:
        return None if place() is None else blueprint(source_settings())

    needs = tuple(map(SourceSettings.name_of, REQUIREMENTS[name].settings))
    return Source(blueprint=make, needs=needs, place=place)


SOURCES: Final[Mapping[str, Source]] = {
    EVENT_GRID: Source(blueprint=lambda: event_grid_blueprint),
    SERVICE_BUS: _source(SERVICE_BUS, service_bus_blueprint),
    SERVICE_BUS_TOPIC: _source(SERVICE_BUS_TOPIC, service_bus_topic_blueprint),
    EVENT_HUBS: _source(EVENT_HUBS, event_hubs_blueprint),
    COSMOS_DB: _source(COSMOS_DB, cosmos_db_blueprint),
    KAFKA: _source(KAFKA, kafka_blueprint),
}
"""Every source by its name."""
