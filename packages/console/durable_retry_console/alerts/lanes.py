"""Lanes that a dead letter blocks, where the app has order keys."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from durable_retry.dead_letters.records import find_dead_letter
from durable_retry.features.order.rules.document import ListedOrderLane
from durable_retry.features.order.store import lanes
from durable_retry.rules.dead_letters.record import Status
from durable_retry_console.alerts import gauges, rules
from durable_retry_console.alerts.health import Look

# One read each, one after the other; mostly the first tells since when.
_LETTERS_LOOKED_AT: Final = 50


async def blocked_lanes(look: Look) -> None:
    """Count the lanes that a dead letter blocks, and those who wait; nothing is read while none is open."""
    blocked, since = list[ListedOrderLane](), None
    if look.letters is None or look.letters.open > 0:
        blocked = [ListedOrderLane.of(lane) async for lane in lanes(look.hub) if lane.blocking is not None]
        since = await _blocked_since(blocked)
    look.found(rules.LANE_BLOCKED, look.seconds_since(since))
    look.shown(gauges.LANES_BLOCKED, len(blocked))
    look.shown(gauges.LANES_WAITING, sum(lane.waiting for lane in blocked))


async def _blocked_since(blocked: Iterable[ListedOrderLane]) -> datetime | None:
    """Return when the lane that is blocked the longest became so; None when none is."""
    fronts = [
        (lane.front_since, lane.front.dead_letter_id)
        for lane in blocked
        if lane.front_since and lane.front and lane.front.dead_letter_id
    ]
    oldest: datetime | None = None
    for front_since, letter_id in sorted(fronts)[:_LETTERS_LOOKED_AT]:
        if oldest is not None and oldest <= front_since:
            break  # Those that came to the front later have been blocked for less.
        letter = await find_dead_letter(letter_id)
        # One that is being replayed keeps its place until the replay has its turn.
        if letter is not None and letter.status is Status.OPEN:
            since = max(front_since, letter.created_at)
            oldest = since if oldest is None else min(oldest, since)
    return oldest
