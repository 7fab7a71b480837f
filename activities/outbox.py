"""The activities of the outbox: reading what is pending, one attempt to send, and the dead letter."""

from typing import Any

import azure.durable_functions as df

from durable_retry import clock
from durable_retry.engine.base.names import OUTBOX_GIVE_UP, OUTBOX_PENDING, PUBLISH, DeadLetterReason
from durable_retry.engine.outbox import Delivery, EventState, StoredEvent, envelope_of, operation_id_of
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.engine.retry.loop import Blocked, blocked_to_json
from durable_retry.services.outbox import deliver
from durable_retry.settings.configuration import find_dependency
from durable_retry.stores.dead_letters.records import keep_operation
from durable_retry.stores.outbox import find_event, mark_failed, mark_sent, pending_of
from durable_retry.stores.outbox_index import OutboxLocation

blueprint = df.Blueprint()


async def outbox_pending(request: dict) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Return the pending events of an operation; when there are none, its index entry is removed.

    Args:
        request: `operation_id`, the `OperationInput.outbox_id` of a run, and `event_id` when only that event
            is to be sent.

    Returns:
        `place`, the location of its rows, and `deliveries` in the order of its events.
    """
    place, pending = await pending_of(request["operation_id"], clock.now())
    only = request.get("event_id")
    events = [event for event in pending if only in {None, event.event_id}]
    deliveries = [event.to_delivery(_dependency_of(event)) for event in events]
    return {"place": place.to_json(), "deliveries": [delivery.to_json() for delivery in deliveries]}


async def publish(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # as above
    """Make one attempt to send an event, and mark its row when it was sent.

    A crash between the two sends it again, under the same id, on which receivers deduplicate.

    Args:
        request: `delivery`, `place` and `attempt`, its number from 1.
        hub: Configuration of the durable client.

    Returns:
        The JSON form of an `AttemptOutcome`; a success also when another execution ended the event, or when
        its row is gone. Or `{"stopped": ...}` with what blocks the attempt.
    """
    delivery, place = Delivery.from_json(request["delivery"]), OutboxLocation.from_json(request["place"])
    row = await find_event(delivery.event_id, place)
    if row is None or row.event.state is EventState.FAILED:
        return _ended_before(request["attempt"]).to_json()
    answer: AttemptOutcome | Blocked = _ended_before(request["attempt"])
    if row.event.state is EventState.PENDING:
        answer = await deliver(hub, delivery, row.event, request["attempt"])
    if not isinstance(answer, AttemptOutcome):
        return {"stopped": blocked_to_json(answer)}
    if answer.category is None:
        await mark_sent(row, clock.now())
    return answer.to_json()


async def outbox_give_up(request: dict) -> str:  # type: ignore[type-arg] # as above
    """Store the dead letter of an event that cannot be delivered. Idempotent.

    Args:
        request: `delivery`, `place`, `category` and `detail`.

    Returns:
        The dead letter's id; "" when the event was sent after all, or its row is gone.
    """
    delivery, place = Delivery.from_json(request["delivery"]), OutboxLocation.from_json(request["place"])
    row = await find_event(delivery.event_id, place)
    if row is None or row.event.state is EventState.SENT:
        return ""
    dead_letter_id = await keep_operation(_entry(delivery, row.event, request), clock.now())
    await mark_failed(row, f"{request['detail']} (dead letter {dead_letter_id})")
    return dead_letter_id


def _entry(delivery: Delivery, event: StoredEvent, request: dict[str, Any]) -> dict[str, Any]:
    """Return the dead letter's entry: the event in place of an operation's request, and its key."""
    operation_id = operation_id_of(event.event_id)
    shown = {name: event.event[name] for name in ("queue", "path") if name in event.event}
    return {
        "event_id": event.event_id,
        "operation": delivery.operation.to_json()
        | {"operation_id": operation_id, "request": {"event": envelope_of(event), **shown}},
        "category": request["category"],
        "reason": DeadLetterReason.OUTBOX_UNDELIVERABLE.value,
        "detail": f"event {event.event_id}: {request['detail']}",
        "attempts": delivery.state.history.to_json()["attempts"],
    }


def _ended_before(number: int) -> AttemptOutcome:
    """Return the outcome for an event that another execution sent or gave up meanwhile."""
    return AttemptOutcome(number=number, started_at=clock.now(), duration_ms=0.0)


def _dependency_of(event: StoredEvent) -> Any:
    name = event.event.get("dependency")
    return None if name is None else find_dependency(name)


blueprint.activity_trigger(input_name="request", activity=OUTBOX_PENDING)(outbox_pending)
blueprint.activity_trigger(input_name="request", activity=PUBLISH)(
    blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)(publish)
)
blueprint.activity_trigger(input_name="request", activity=OUTBOX_GIVE_UP)(outbox_give_up)
