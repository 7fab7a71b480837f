"""The order lanes in the task hub: the entity `order_lane`, one per order key.

Every function raises `TaskHubUnavailableError` where the task hub does not answer.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from azure.core.exceptions import AzureError
from durabletask.entities import EntityInstanceId

from durable_retry.base.answers import read_or
from durable_retry.base.documents import json_object
from durable_retry.base.errors import ContendedError, TaskHubUnavailableError
from durable_retry.base.json_forms import from_ms
from durable_retry.features.order.names import DROP, JOIN, LEAVE, ORDER_LANE, RELEASE
from durable_retry.features.order.rules.lane import Lane, LaneMessage, Place, Tail, lane_of_state, tail_after
from durable_retry.features.order.rules.members import order_of
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.operations.keys import hash_of_key
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import LoopOwned
from durable_retry.settings.configuration import function_name
from durable_retry.storage import tables


def lane_id(order_key: str) -> EntityInstanceId:
    """Return the id of the lane of an order key."""
    return EntityInstanceId(function_name(ORDER_LANE), hash_of_key(order_key))


def message_of(
    operation: OperationInput,
    *,
    run: int = 0,
    dead_letter_id: str | None = None,
) -> LaneMessage | None:
    """Return what an operation says to its lane; None when it has no order key.

    One that was submitted to begin later enters its lane when it begins.

    Args:
        run: Its run number; 0 before its orchestration asks.
        dead_letter_id: What it ended as, if it blocks those behind it.
    """
    order = order_of(operation)
    if order is None:
        return None
    return LaneMessage(
        order_key=order.key,
        operation_id=operation.operation_id,
        accepted_at=operation.start_at or operation.created_at,
        run=run,
        number=order.number,
        after=order.after,
        dead_letter_id=dead_letter_id,
    )


async def take_number(order_key: str, operation_id: str, *, is_anew: bool = False) -> Tail:
    """Give a number to an operation that is about to be started; return the tail of its lane behind it.

    It costs a read and a write.

    Args:
        is_anew: Whether to give it a new number, although it has one.

    Raises:
        TaskHubUnavailableError: The table does not answer; the operation was not started.
    """
    key = lane_id(order_key).key
    # Submissions of one process wait for each other here: at the row, all but one would write in vain.
    async with lane_lock(key):
        try:
            now = clock.now()
            return await _change_tail(key, lambda tail: tail_after(tail, operation_id, now, is_anew=is_anew))
        except (AzureError, ContendedError) as error:
            raise TaskHubUnavailableError(f"the order lane gives no number: {error}") from error


TABLE: Final = "OrderLanes"

# A lock lives while a submission holds it or waits for it.
_locks: Final = LoopOwned[WeakValueDictionary[str, asyncio.Lock]](WeakValueDictionary)


def lane_lock(key: str) -> asyncio.Lock:
    """Return the lock under which this process takes the numbers of a lane."""
    return _locks.get().setdefault(key, asyncio.Lock())


async def _change_tail(key: str, rule: Callable[[Tail | None], Tail]) -> Tail:
    keys = {"PartitionKey": key[:2], "RowKey": key}
    return await tables.change_row(
        TABLE, keys, rule, read=_tail_of, write=lambda tail: {"tail": json.dumps(tail.to_json())}
    )


def _tail_of(row: tables.Row) -> Tail:
    return Tail.from_json_text(row["tail"])


async def remove_old_tails(now: datetime) -> None:
    """Remove the tails of lanes that were not used for a day, in one of 256 parts: all take 21 hours."""
    part = int(now.timestamp() // _PART_SECONDS) % 256
    for stored in await tables.read_partition(TABLE, f"{part:02x}"):
        # A tail that cannot be read stays, and does not stop the removal of others.
        tail = read_or(partial(_tail_of, stored.row), lambda _: None)
        if tail is not None and from_ms(tail.number) < now - _TAIL_KEPT:
            await tables.delete_version(TABLE, f"{part:02x}", stored.row["RowKey"], stored.etag)


_PART_SECONDS: Final = 300
_TAIL_KEPT: Final = timedelta(days=1)


async def join_lane(hub: TaskHub, operation: OperationInput) -> None:
    """Show an operation in its lane before its orchestration asks for its turn."""
    if (message := message_of(operation)) is not None:
        await hub.signal_entity(lane_id(message.order_key), JOIN, message.to_json())


async def read_lane(hub: TaskHub, order_key: str) -> Lane:
    """Return a lane, which may be empty; UnreadableRecordError where it cannot be read."""
    return lane_of_state(order_key, json_object(await hub.read_entity(lane_id(order_key))))


async def lanes_after(hub: TaskHub, place: str | None) -> tuple[list[Lane], str | None]:
    """Return a page of the lanes that are not empty, without those that cannot be read.

    The second value is the `place` of the next page; None after the last page, and for the first.
    """
    states, following = await hub.entity_page(function_name(ORDER_LANE), place)
    read = (read_or(partial(Lane.from_json_text, state), _no_lane) for state in states)
    return [lane for lane in read if lane is not None], following


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
    """Signal that the operation of a place has ended, where it did not do so itself."""
    await _signal(hub, LEAVE, _message(lane, place, dead_letter_id))


async def drop_from_lane(hub: TaskHub, lane: Lane, place: Place) -> None:
    """Signal that nothing is left of the operation of a place."""
    await _signal(hub, DROP, _message(lane, place, None))


async def release_lane(hub: TaskHub, order_key: str, operation_id: str, dead_letter_id: str) -> None:
    """Let the operations go on that wait behind a dead letter."""
    message = LaneMessage(
        order_key=order_key, operation_id=operation_id, accepted_at=clock.now(), dead_letter_id=dead_letter_id
    )
    await _signal(hub, RELEASE, message)


def _message(lane: Lane, place: Place, dead_letter_id: str | None) -> LaneMessage:
    return LaneMessage(
        order_key=lane.order_key,
        operation_id=place.operation_id,
        accepted_at=place.accepted_at,
        run=place.run,
        number=place.number or None,
        dead_letter_id=dead_letter_id,
    )


async def _signal(hub: TaskHub, operation: str, message: LaneMessage) -> None:
    await hub.signal_entity(lane_id(message.order_key), operation, message.to_json())
