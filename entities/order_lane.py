"""The entity `order_lane`, one per order key; the rules are in `features/order/rules/lane`.

`lane_id` in `features/order/store.py` makes its key of the order key. Time is the clock of the machine that
runs it, and only says since when an operation is in front.
"""

from typing import Any

import azure.durable_functions as df
from durabletask.entities import DurableEntity

from durable_retry.features.order.names import ORDER_LANE, PASS_TURN
from durable_retry.features.order.rules.lane import (
    Lane,
    LaneMessage,
    Place,
    dropped,
    joined,
    lane_of_state,
    left,
    passed_to,
    released,
    taken,
)
from durable_retry.hub.orchestrations import start_from_entity
from durable_retry.runtime import clock

blueprint = df.Blueprint()


class OrderLane(DurableEntity):
    """Operation `take` is called by an operation's orchestration; the others are signals.

    Input of all is a `LaneMessage`. A lane that nobody is in has no state.
    """

    def join(self, message: dict[str, Any]) -> None:
        """Give an accepted operation its place."""
        before, place = self._read(message)
        self._store_lane(before, joined(before, place, message.get("after")))

    def take(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return whether an operation has its turn: the JSON form of a `Turn`."""
        before, place = self._read(message)
        lane, turn = taken(before, place, message.get("after"))
        self._store_lane(before, lane, told=place)
        return turn.to_json()

    def leave(self, message: dict[str, Any]) -> None:
        """Remove an operation that ended; with `dead_letter_id` it keeps its place and blocks the lane."""
        before, place = self._read(message)
        self._store_lane(before, left(before, place, message.get("dead_letter_id")))

    def drop(self, message: dict[str, Any]) -> None:
        """Remove an operation that is gone."""
        before, place = self._read(message)
        self._store_lane(before, dropped(before, place))

    def release(self, message: dict[str, Any]) -> None:
        """Let those behind an archived dead letter go on."""
        before, place = self._read(message)
        self._store_lane(before, released(before, place.operation_id, message["dead_letter_id"]))

    def _read(self, message: dict[str, Any]) -> tuple[Lane, Place]:
        parsed = LaneMessage.from_json(message)
        return lane_of_state(parsed.order_key, self.get_state(dict)), Place.of(parsed)

    def _store_lane(self, before: Lane, lane: Lane, told: Place | None = None) -> None:
        lane = lane.since(before, clock.now())
        self.set_state(lane.to_json() if lane.queue else None)
        following = passed_to(before, lane)
        if following is not None and following != told:
            input_ = {"operation_id": following.operation_id, "run": following.run}
            start_from_entity(self.entity_context, PASS_TURN, input_)


blueprint.function_name(ORDER_LANE)(
    blueprint.entity_trigger(context_name="context", entity_name=ORDER_LANE)(OrderLane)
)
