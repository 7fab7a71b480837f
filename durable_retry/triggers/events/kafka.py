"""Kafka: batches of events of one topic, each an operation.

The values are asked for as bytes: as text the host would wrap each in a JSON object of its own.
Source: `KafkaEventDataConvertManager` of the Functions Kafka extension.
"""

import base64
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, List  # noqa: UP035 - see the trigger's parameter

import azure.functions as func

from durable_retry.engine.base.trace_context import trace_in
from durable_retry.engine.intake.message import Arrival
from durable_retry.settings.catalogue import KAFKA_BROKERS, KAFKA_TOPIC
from durable_retry.triggers.events.platform_retries import RetriedBlueprint, accept_batch

SOURCE: Final = "kafka"


async def operations_kafka(
    events: List[func.KafkaEvent],  # noqa: UP006 - the worker does not take list[...] for a batch
    context: func.Context,
    hub: str,
) -> None:
    """Start the operations that a batch of events holds."""
    await accept_batch(hub, list(arrivals_of(events)), context)


def arrivals_of(events: Sequence[func.KafkaEvent]) -> Iterator[Arrival]:
    """Read a batch; an event is named by its topic, its partition and its offset."""
    for event in events:
        named = None not in (event.partition, event.offset)
        yield Arrival(
            source=SOURCE,
            body=event.get_body() or b"",  # None: a deletion, in a compacted topic
            place=event.topic or KAFKA_TOPIC.reference,
            native_id=f"{event.topic}-{event.partition}-{event.offset}" if named else "",
            partition=f"{event.topic}-{event.partition}",
            may_be_left=True,
            trace=trace_in(dict(_headers(event.headers))),
        )


def _headers(headers: Any) -> Iterator[tuple[str, str]]:
    """Read the headers of an event: the extension gives each as a name and its bytes in base64."""
    for header in headers or ():
        with suppress(KeyError, TypeError, ValueError):  # not of that form, or no text
            yield header["Key"], base64.b64decode(header["Value"]).decode()


def kafka_blueprint(max_retries: int, options: dict[str, Any]) -> RetriedBlueprint:
    """Return the blueprint; a partition waits until its batch is accepted.

    Args:
        max_retries: By the platform; -1 for ever.
        options: Further properties of the trigger, such as `consumer_group` and how to authenticate.
    """
    blueprint = RetriedBlueprint()
    trigger = blueprint.kafka_trigger(
        arg_name="events",
        topic=KAFKA_TOPIC.reference,
        broker_list=KAFKA_BROKERS.reference,
        cardinality=func.Cardinality.MANY,
        data_type=func.DataType.BINARY,
        **options,
    )
    blueprint.retry_growing(blueprint.with_hub(trigger(operations_kafka)), max_retries)
    return blueprint
