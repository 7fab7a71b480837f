"""What people see of order lanes."""

from itertools import islice
from typing import Final, Self

from pydantic import Field

from durable_retry.base.answers import Answer, Instant, Unreadable, left_out
from durable_retry.base.json_forms import is_none
from durable_retry.features.order.rules.lane import Lane, Place

SHOWN_PLACES: Final = 200


class LanePlace(Answer):
    """The place of an operation in the lane of its order key."""

    operation_id: str
    accepted_at: Instant = Field(description="When it was accepted, or began where that was to be later.")
    dead_letter_id: str | None = left_out(
        "What it ended as and keeps its place with. Left out while it runs or waits."
    )

    @classmethod
    def of(cls, lane: Lane, place: Place) -> Self:
        return cls(
            operation_id=place.operation_id,
            accepted_at=place.accepted_at,
            dead_letter_id=lane.dead_letters.get(place.operation_id),
        )


class ListedOrderLane(Answer):
    """Operations of one order key, of which one runs at a time."""

    order_key: str = Field(description="As the operations have it.")
    blocked: bool = Field(description="Whether the operation in front ended as a dead letter.")
    front: LanePlace | None = Field(description="Who has the turn; null for an empty lane.")
    front_since: Instant | None = Field(description="Since when it is in front.")
    waiting: int = Field(description="How many are behind it.")
    queue: tuple[LanePlace, ...] | None = Field(
        default=None,
        exclude_if=is_none,
        description=f"Who waits, the next first; at most {SHOWN_PLACES}. Left out in a list of several.",
    )
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)

    @classmethod
    def of(cls, lane: Lane) -> Self:
        """Return what people see of a lane in a list."""
        front = lane.front
        return cls(
            order_key=lane.order_key,
            blocked=lane.blocking is not None,
            front=None if front is None else LanePlace.of(lane, front),
            front_since=lane.front_since,
            waiting=max(0, len(lane) - 1),
        )


class OrderLane(ListedOrderLane):
    """Operations of one order key, and who waits."""

    queue: tuple[LanePlace, ...] = Field(
        default=(), description=f"Who waits, the next first; at most {SHOWN_PLACES}."
    )

    @classmethod
    def that_nobody_can_read(cls, order_key: str, why: str) -> Self:
        """Return a stand-in for a lane whose state is damaged, or of a later version."""
        empty = ListedOrderLane.of(Lane(order_key=order_key))
        return cls(**(dict(empty) | {"queue": (), "unreadable": why}))

    @classmethod
    def with_queue(cls, lane: Lane) -> Self:
        waiting = islice(lane.places(), 1, 1 + SHOWN_PLACES)
        queue = tuple(LanePlace.of(lane, place) for place in waiting)
        return cls(**(dict(ListedOrderLane.of(lane)) | {"queue": queue}))
