"""The activities of the outbox: reading what is pending, one attempt to send, and the dead letter."""

from typing import Any

from durable_retry.features.outbox.rules.outbox import Delivery
from durable_retry.features.outbox.sending import deliver_once, give_up, pending_deliveries
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.settings.configuration import present_name


async def outbox_pending(request: dict[str, Any]) -> dict[str, Any]:
    """Return the pending events of an operation; when there are none, its index entry is removed.

    Args:
        request: `operation_id`, the `OperationInput.run_id` of a run, and `event_id` when only that event
            is to be sent.

    Returns:
        `place`, the location of its rows, and `deliveries` in the order of its events.
    """
    place, deliveries = await pending_deliveries(request["operation_id"], request.get("event_id"))
    return {"place": place.to_json(), "deliveries": [delivery.to_json() for delivery in deliveries]}


async def publish(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Make one attempt to send an event, and mark its row when it was sent.

    Args:
        request: `delivery`, `place` and `attempt`, its number from 1.

    Returns:
        The JSON form of an `AttemptOutcome`; a success also when another execution ended the event, or when
        its row is gone. Or `{"stopped": ...}` with what blocks the attempt. With the `event_id`, and with
        `renamed_to` where its dependency has another name by now.
    """
    delivery = Delivery.from_json(request["delivery"])
    name = present_name(delivery.lane)
    renamed = {} if name == delivery.lane else {"renamed_to": name}
    delivery = delivery.renamed(name) if renamed else delivery
    answer = await deliver_once(hub, delivery, request["place"], request["attempt"])
    document = answer.to_json() if isinstance(answer, AttemptOutcome) else {"stopped": answer.to_json()}
    return document | renamed | {"event_id": delivery.event_id}


async def outbox_give_up(request: dict[str, Any]) -> str:
    """Store the dead letter of an event that cannot be delivered. Idempotent.

    Args:
        request: `delivery`, `place`, `category` and `detail`.

    Returns:
        The dead letter's id; "" when the event was sent after all, or its row is gone.
    """
    delivery, place = Delivery.from_json(request["delivery"]), request["place"]
    return await give_up(delivery, place, category=request["category"], detail=request["detail"]) or ""
