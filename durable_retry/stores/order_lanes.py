"""The order lanes in the task hub: the entity `order_lane`, one per order key.

Every function raises `TaskHubUnavailableError` where the task hub does not answer.
"""

from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from hashlib import sha256

from durabletask.entities import EntityInstanceId

from durable_retry import clock
from durable_retry.engine.base.json_input import json_object
from durable_retry.engine.base.names import DROP, JOIN, LEAVE, ORDER_LANE, RELEASE
from durable_retry.engine.base.unreadable import read_or
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.order_lanes.lane import Lane, LaneMessage, Place, lane_of_state
from durable_retry.settings.configuration import function_name
from durable_retry.stores.task_hub import TaskHub


def lane_id(order_key: str) -> EntityInstanceId:
    """Return the id of the lane of an order key: a hash of it, since a key may have any characters."""
    key = sha256(order_key.encode("utf-8", "surrogatepass")).hexdigest()[:40]
    return EntityInstanceId(function_name(ORDER_LANE), key)


def message_of(
    operation: OperationInput,
    *,
    run: int = 0,
    accepted_at: datetime | None = None,
    dead_letter_id: str | None = None,
) -> LaneMessage | None:
    """Return what an operation says to its lane; None when it has no order key.

    Args:
        run: The run number of its claim; 0 before that.
        accepted_at: When the start was accepted, if that was another one than this; None if not. An operation
            that was submitted to begin later enters its lane when it begins.
        dead_letter_id: What it ended as, if it blocks those behind it.
    """
    if operation.order_key is None:
        return None
    return LaneMessage(
        order_key=operation.order_key,
        operation_id=operation.operation_id,
        accepted_at=operation.start_at or accepted_at or operation.created_at,
        run=run,
        dead_letter_id=dead_letter_id,
    )


async def join_lane(hub: TaskHub, operation: OperationInput, accepted_at: datetime) -> None:
    """Give an operation its place before its submission is answered, unless it begins later.

    So of two that are submitted one after the other the first has the earlier place.
    """
    message = message_of(operation, accepted_at=accepted_at)
    if message is not None and operation.start_at is None:
        await hub.signal_entity(lane_id(message.order_key), JOIN, message.to_json())


async def read_lane(hub: TaskHub, order_key: str) -> Lane:
    """Return a lane, an empty one where nobody is in it; UnreadableRecordError where nobody can read it."""
    return lane_of_state(order_key, json_object(await hub.read_entity(lane_id(order_key))))


async def lanes_after(hub: TaskHub, place: str | None) -> tuple[list[Lane], str | None]:
    """Return a page of the lanes that somebody is in, but for those that nobody can read.

    With them the place behind the page; None at the end, as at the begin.
    """
    page = await hub.entity_page(function_name(ORDER_LANE), place)
    read = (read_or(partial(Lane.from_json_text, state), _no_lane) for state in page.states)
    return [lane for lane in read if lane is not None], page.following


async def lanes(hub: TaskHub) -> AsyncIterator[Lane]:
    """Give all lanes of `lanes_after`."""
    place: str | None = None
    while True:
        page, place = await lanes_after(hub, place)
        for lane in page:
            yield lane
        if place is None:
            return


def _no_lane(_reason: str) -> Lane | None:
    return None


async def leave_lane(hub: TaskHub, lane: Lane, place: Place, dead_letter_id: str | None) -> None:
    """Say that the operation of a place has ended, where it did not say so itself."""
    await _say(hub, LEAVE, _message(lane, place, dead_letter_id))


async def drop_from_lane(hub: TaskHub, lane: Lane, place: Place) -> None:
    """Say that nothing is left of the operation of a place."""
    await _say(hub, DROP, _message(lane, place, None))


async def release_lane(hub: TaskHub, order_key: str, operation_id: str, dead_letter_id: str) -> None:
    """Let those go on that wait behind a dead letter."""
    message = LaneMessage(
        order_key=order_key, operation_id=operation_id, accepted_at=clock.now(), dead_letter_id=dead_letter_id
    )
    await _say(hub, RELEASE, message)


def _message(lane: Lane, place: Place, dead_letter_id: str | None) -> LaneMessage:
    return LaneMessage(
        order_key=lane.order_key,
        operation_id=place.operation_id,
        accepted_at=place.accepted_at,
        run=place.run,
        dead_letter_id=dead_letter_id,
    )


async def _say(hub: TaskHub, operation: str, message: LaneMessage) -> None:
    await hub.signal_entity(lane_id(message.order_key), operation, message.to_json())
