"""Event Hubs: batches of one partition, each event an operation."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, List  # noqa: UP035 - see the trigger's parameter

import azure.functions as func

from durable_retry.engine.base.trace_context import trace_in
from durable_retry.engine.intake.message import Arrival
from durable_retry.services.intake import intake
from durable_retry.settings.catalogue import EVENT_HUB, EVENT_HUB_CONNECTION
from durable_retry.triggers.events.platform_retries import RetriedBlueprint, accept_batch

SOURCE: Final = "event_hubs"


async def operations_event_hubs(
    events: List[func.EventHubEvent],  # noqa: UP006 - the worker does not take list[...] for a batch
    context: func.Context,
    hub: str,
) -> None:
    """Start the operations that a batch of events holds."""
    await accept_batch(hub, list(arrivals_of(events, intake().settings.places.get(SOURCE, ""))), context)


def arrivals_of(events: Sequence[func.EventHubEvent], place: str) -> Iterator[Arrival]:
    """Read a batch of one event hub; an event is named by its partition and its sequence number."""
    for position, event in enumerate(events):
        metadata = event.metadata or {}
        partition, number = _partition(metadata), event.sequence_number
        if number is None:
            number = _item(metadata.get("SequenceNumberArray"), position)
        yield Arrival(
            source=SOURCE,
            body=event.get_body(),
            place=place,
            native_id="" if number is None else f"{partition}-{number}",
            partition=partition,
            may_be_left=True,
            trace=trace_in(_item(metadata.get("PropertiesArray"), position)),
        )


def event_hubs_blueprint(max_retries: int, consumer_group: str) -> RetriedBlueprint:
    """Return the blueprint; a partition waits until its batch is accepted.

    Args:
        max_retries: By the platform; -1 for ever.
        consumer_group: Whose checkpoints these are.
    """
    blueprint = RetriedBlueprint()
    trigger = blueprint.event_hub_message_trigger(
        arg_name="events",
        event_hub_name=EVENT_HUB.reference,
        connection=EVENT_HUB_CONNECTION.name,
        consumer_group=consumer_group,
        cardinality=func.Cardinality.MANY,
        data_type=func.DataType.BINARY,
    )
    blueprint.retry_growing(blueprint.with_hub(trigger(operations_event_hubs)), max_retries)
    return blueprint


def _partition(metadata: Any) -> str:
    context = metadata.get("PartitionContext")
    found = context.get("PartitionId") if isinstance(context, dict) else None
    return "" if found is None else str(found)


def _item(values: Any, position: int) -> Any:
    return values[position] if isinstance(values, list) and position < len(values) else None
