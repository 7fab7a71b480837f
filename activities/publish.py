"""The activities of the outbox: what is pending, one attempt to send, and giving up."""

from typing import Any

import azure.durable_functions as df

from activities.delivery import deliver
from engine.cloud_event import envelope_of
from engine.gate import Stop, stop_to_json
from engine.operation import AttemptOutcome
from engine.outbox import Delivery, EventState, StoredEvent, operation_id_of
from engine.vocabulary import DeadLetterReason
from stores import clock
from stores.configuration import find_dependency
from stores.dead_letters import keep_operation
from stores.outbox import find_event, mark_failed, mark_sent, pending_of
from stores.outbox_place import Place
from stores.task_hub import OUTBOX_GIVE_UP, OUTBOX_PENDING, PUBLISH

blueprint = df.Blueprint()


async def outbox_pending(request: dict) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Return what an operation has to send; when that is nothing, it is taken off the index.

    Args:
        request: `operation_id`, and `event_id` when only that one is of interest.

    Returns:
        `place` of its rows, and `deliveries` in the order of its events.
    """
    place, pending = await pending_of(request["operation_id"], clock.now())
    only = request.get("event_id")
    events = [event for event in pending if only in {None, event.event_id}]
    deliveries = [event.to_delivery(_dependency_of(event)) for event in events]
    return {"place": place.to_json(), "deliveries": [delivery.to_json() for delivery in deliveries]}


async def publish(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # as above
    """Try once to send an event, and say in its row when it was sent.

    A crash between the two sends it again, under the same id.

    Args:
        request: `delivery`, `place` and `attempt`, its number from 1.
        hub: Configuration of the durable client.

    Returns:
        The JSON form of an `AttemptOutcome`; a success also when another execution ended the event, or when
        its row is gone. Or `{"stopped": ...}` with what holds it up at the gate of its dependency.
    """
    delivery, place = Delivery.from_json(request["delivery"]), Place.from_json(request["place"])
    kept = await find_event(delivery.event_id, place)
    if kept is None or kept.event.state is EventState.FAILED:
        return _ended_before(request["attempt"]).to_json()
    answer: AttemptOutcome | Stop = _ended_before(request["attempt"])
    if kept.event.state is EventState.PENDING:
        answer = await deliver(hub, delivery, kept.event, request["attempt"])
    if not isinstance(answer, AttemptOutcome):
        return {"stopped": stop_to_json(answer)}
    if answer.category is None:
        await mark_sent(kept, clock.now())
    return answer.to_json()


async def outbox_give_up(request: dict) -> str:  # type: ignore[type-arg] # as above
    """Leave an event that cannot be delivered to a person, once however often this runs.

    Args:
        request: `delivery`, `place`, `category` and `detail`.

    Returns:
        The dead letter's id; "" when the event was sent after all, or its row is gone.
    """
    delivery, place = Delivery.from_json(request["delivery"]), Place.from_json(request["place"])
    kept = await find_event(delivery.event_id, place)
    if kept is None or kept.event.state is EventState.SENT:
        return ""
    dead_letter_id = await keep_operation(_entry(delivery, kept.event, request), clock.now())
    await mark_failed(kept, f"{request['detail']} (dead letter {dead_letter_id})")
    return dead_letter_id


def _entry(delivery: Delivery, event: StoredEvent, request: dict[str, Any]) -> dict[str, Any]:
    """Return what the dead letter keeps: the event where an operation has its request, and its key."""
    operation_id = operation_id_of(event.event_id)
    shown = {name: event.event[name] for name in ("queue", "path") if name in event.event}
    return {
        "event_id": event.event_id,
        "operation": delivery.operation.to_json()
        | {"operation_id": operation_id, "request": {"event": envelope_of(event), **shown}},
        "category": request["category"],
        "reason": DeadLetterReason.OUTBOX_UNDELIVERABLE.value,
        "detail": f"event {event.event_id}: {request['detail']}",
        "attempts": delivery.history.to_json()["attempts"],
    }


def _ended_before(number: int) -> AttemptOutcome:
    """Answer for an event that another execution sent, or gave up, in the meantime."""
    return AttemptOutcome(number=number, started_at=clock.now(), duration_ms=0.0)


def _dependency_of(event: StoredEvent) -> Any:
    name = event.event.get("dependency")
    return None if name is None else find_dependency(name)


blueprint.activity_trigger(input_name="request", activity=OUTBOX_PENDING)(outbox_pending)
blueprint.activity_trigger(input_name="request", activity=PUBLISH)(
    blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)(publish)
)
blueprint.activity_trigger(input_name="request", activity=OUTBOX_GIVE_UP)(outbox_give_up)
