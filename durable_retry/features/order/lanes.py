"""Order lanes: letting a lane go on when the operation in front is gone, or its dead letter was archived.

An operation gives its turn back by a signal at its end. The platform drops the signals of an entity batch
whose worker dies, and an orchestration that is terminated or purged sends none. So the operations that wait
near the front have it looked at now and then, and upkeep looks at every lane in turn.
"""

import logging
from datetime import datetime
from enum import Enum, auto
from functools import partial
from itertools import islice
from typing import Final

from durable_retry.base.answers import Page, read_or
from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.json_forms import UnreadableRecordError
from durable_retry.base.names import OperationState
from durable_retry.circuit.cache import circuit_of
from durable_retry.dead_letters.records import find_dead_letter
from durable_retry.features.order.rules.document import ListedOrderLane, OrderLane
from durable_retry.features.order.rules.lane import HeldTurn, Lane, LaneMessage, Place
from durable_retry.features.order.rules.members import blocks_its_order
from durable_retry.features.order.store import (
    drop_from_lane,
    lanes,
    lanes_after,
    leave_lane,
    message_of,
    read_lane,
    release_lane,
    remove_old_tails,
)
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.status import document_of, find_status, operation_of
from durable_retry.rules.dead_letters.record import KeptDeadLetter, Status
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.status import is_finished
from durable_retry.runtime.concurrency import raise_first, run_each, settle_all
from durable_retry.settings.configuration import find_dependency
from durable_retry.storage import rounds

STEP_SECONDS: Final = 25.0
"""How long upkeep looks at lanes in one run."""

LOOKED_AT: Final = 10
"""Most places that one look goes through, from the front to the first operation that lives."""

_log = logging.getLogger(__name__)


class Found(Enum):
    """What a look finds at a place of a lane."""

    LIVES = auto()
    """An operation that has not ended."""
    BLOCKS = auto()
    """One that ended as a dead letter, which is open or about to be replayed."""
    OVER = auto()
    """One that is gone, or ended and left its place behind."""


async def look_at_lane(hub: TaskHub, order_key: str) -> int:
    """Remove places of operations that are over, from the front to the first that lives; return how many."""
    return await _look_along(hub, await read_lane(hub, order_key))


async def _look_along(hub: TaskHub, lane: Lane) -> int:
    over = 0
    for place in islice(lane.places(), LOOKED_AT):
        found = await _look_at_place(hub, lane, place)
        if found is Found.LIVES:
            break
        over += found is Found.OVER
    if over:
        _log.warning("took %d places in the order lane %s whose operations were over", over, lane.order_key)
    return over


async def find_unseen(hub: TaskHub, operation_id: str) -> LaneMessage | None:
    """Return the join of an operation that its lane has not seen; None where no other has to wait for it.

    That is one that was never started, or is over and does not block those behind it.
    """
    instance = await hub.read_instance(operation_id)
    operation = None if instance is None else read_or(partial(operation_of, instance), lambda _: None)
    if instance is None or operation is None:
        return None
    document = document_of(instance)
    blocks = document["status"] == OperationState.DEAD_LETTERED and blocks_its_order(operation)
    return message_of(operation) if blocks or not is_finished(document) else None


async def hold_of(hub: TaskHub, dependency_name: str, operation_id: str) -> HeldTurn | None:
    """Return how a hold of everything, in which deadlines stop, holds an operation, or did within an hour.

    None where none does.
    """
    if (dependency := find_dependency(dependency_name)) is None:
        return None
    circuit = circuit_of(hub, dependency)
    freeze, now = (await circuit.shared.read()).freeze, circuit.now()
    if freeze is None or freeze.stops_deadline is not True:
        return None
    await circuit.refresh_snapshot()
    return HeldTurn(freeze.since, freeze.why, freeze.ended_at(now), circuit.freeze(operation_id, now))


async def tend_lanes(hub: TaskHub, now: datetime) -> None:
    """Look at lanes, and remove the tails of those that are not used any more."""
    await run_each([partial(look_at_lanes, hub, STEP_SECONDS), partial(remove_old_tails, now)])


async def look_at_lanes(hub: TaskHub, seconds: float) -> None:
    """Look at pages of lanes for so long, from where the last run stopped.

    Lanes in which none waits are looked at, too: a late message may have put an operation there.
    """
    errors = list[Exception]()
    async for page in rounds.pages_from_place("lanes", partial(lanes_after, hub), seconds):
        errors += (await settle_all(partial(_look_along, hub), page, 1))[1]
    raise_first(errors)


async def _look_at_place(hub: TaskHub, lane: Lane, place: Place) -> Found:
    """Look what became of the operation of a place, and signal it to the lane where that has not seen it."""
    document = await find_status(hub, place.operation_id)
    if document is None:
        await drop_from_lane(hub, lane, place)
        return Found.OVER
    if not is_finished(document):
        return Found.LIVES
    if document["status"] != OperationState.DEAD_LETTERED:
        return await _leave(hub, lane, place)
    letter_id = (document["dead_letter"] or {}).get("id")
    if letter_id is None:
        # Upkeep writes the dead letter of an orchestration that was terminated or purged.
        return Found.BLOCKS
    return await _look_at_letter(hub, lane, place, letter_id)


async def _look_at_letter(hub: TaskHub, lane: Lane, place: Place, letter_id: str) -> Found:
    dead_letter_id = lane.dead_letters.get(place.operation_id)
    letter = await find_dead_letter(letter_id)
    if letter is None or letter.status is Status.ARCHIVED:
        if dead_letter_id is None:
            return await _leave(hub, lane, place)
        await release_lane(hub, lane.order_key, place.operation_id, dead_letter_id)
        return Found.OVER
    if letter.status is Status.REPLAYED or dead_letter_id == letter_id:
        return Found.BLOCKS
    if not _blocks(letter):
        return await _leave(hub, lane, place)
    await leave_lane(hub, lane, place, letter_id)
    return Found.BLOCKS


async def _leave(hub: TaskHub, lane: Lane, place: Place) -> Found:
    # An operation whose orchestration never asked has no run that could leave.
    await (leave_lane(hub, lane, place, None) if place.run else drop_from_lane(hub, lane, place))
    return Found.OVER


def _blocks(letter: KeptDeadLetter) -> bool:
    def reads() -> bool:
        return blocks_its_order(OperationInput.from_json(letter.operation or {}))

    return read_or(reads, lambda _: True)


async def release_archived(hub: TaskHub, letter: KeptDeadLetter) -> None:
    """Let the operations go on that wait behind an archived dead letter.

    Where the task hub does not take the signal, a later look at the lane does the same.
    """
    if letter.order_key is None or letter.operation_id is None:
        return
    try:
        await release_lane(hub, letter.order_key, letter.operation_id, letter.id)
    except TaskHubUnavailableError:
        _log.warning("the order lane of %s could not be told that it was archived", letter.id)


async def find_lane(hub: TaskHub, order_key: str) -> OrderLane:
    """Return the lane of an order key; an empty one where it has no operations."""
    try:
        return OrderLane.with_queue(await read_lane(hub, order_key))
    except UnreadableRecordError as error:
        return OrderLane.that_nobody_can_read(order_key, str(error))


async def list_lanes(
    hub: TaskHub, order_key: str | None, *, blocked: bool | None, limit: int, after: int
) -> Page[ListedOrderLane]:
    """Return lanes in which an operation waits or a dead letter blocks.

    Args:
        blocked: Whether a dead letter blocks them; None for all.
        order_key: Only the lane of this key, which is shown with its queue, also where it is empty; None for
            all.
        after: How many are on the pages before.
    """
    if order_key is not None:
        named = await find_lane(hub, order_key)
        items = (named,) if blocked in {None, named.blocked} else ()
        return Page[ListedOrderLane](items=items, next_cursor=None)
    listed = [ListedOrderLane.of(lane) async for lane in lanes(hub)]
    listed = [lane for lane in listed if (lane.blocked or lane.waiting) and blocked in {None, lane.blocked}]
    listed.sort(key=lambda lane: (not lane.blocked, -lane.waiting, lane.order_key))
    following = after + limit
    return Page[ListedOrderLane](
        items=tuple(listed[after:following]), next_cursor=str(following) if following < len(listed) else None
    )
