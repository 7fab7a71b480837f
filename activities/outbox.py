"""The activities of the outbox: reading what is pending, one attempt to send, and the dead letter."""

import azure.durable_functions as df

from durable_retry.binding import TaskHub, bind_hub
from durable_retry.engine.base.names import OUTBOX_GIVE_UP, OUTBOX_PENDING, PUBLISH
from durable_retry.engine.outbox import Delivery
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.engine.retry.loop import blocked_to_json
from durable_retry.services.outbox import deliver_once, give_up, pending_deliveries

blueprint = df.Blueprint()


async def outbox_pending(request: dict) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Return the pending events of an operation; when there are none, its index entry is removed.

    Args:
        request: `operation_id`, the `OperationInput.outbox_id` of a run, and `event_id` when only that event
            is to be sent.

    Returns:
        `place`, the location of its rows, and `deliveries` in the order of its events.
    """
    place, deliveries = await pending_deliveries(request["operation_id"], request.get("event_id"))
    return {"place": place.to_json(), "deliveries": [delivery.to_json() for delivery in deliveries]}


async def publish(request: dict, hub: TaskHub) -> dict:  # type: ignore[type-arg] # as above
    """Make one attempt to send an event, and mark its row when it was sent.

    Args:
        request: `delivery`, `place` and `attempt`, its number from 1.

    Returns:
        The JSON form of an `AttemptOutcome`; a success also when another execution ended the event, or when
        its row is gone. Or `{"stopped": ...}` with what blocks the attempt.
    """
    delivery = Delivery.from_json(request["delivery"])
    answer = await deliver_once(hub, delivery, request["place"], request["attempt"])
    return answer.to_json() if isinstance(answer, AttemptOutcome) else {"stopped": blocked_to_json(answer)}


async def outbox_give_up(request: dict) -> str:  # type: ignore[type-arg] # as above
    """Store the dead letter of an event that cannot be delivered. Idempotent.

    Args:
        request: `delivery`, `place`, `category` and `detail`.

    Returns:
        The dead letter's id; "" when the event was sent after all, or its row is gone.
    """
    delivery, place = Delivery.from_json(request["delivery"]), request["place"]
    return await give_up(delivery, place, category=request["category"], detail=request["detail"]) or ""


blueprint.activity_trigger(input_name="request", activity=OUTBOX_PENDING)(outbox_pending)
blueprint.activity_trigger(input_name="request", activity=PUBLISH)(bind_hub(blueprint)(publish))
blueprint.activity_trigger(input_name="request", activity=OUTBOX_GIVE_UP)(outbox_give_up)
