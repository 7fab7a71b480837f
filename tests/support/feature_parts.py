"""What features keep of operations that tests make."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from durable_retry.base.json_forms import to_ms
from durable_retry.features.order.names import ORDER, OrderOnFailure
from durable_retry.features.order.rules.lane import Lane, Place, joined, left
from durable_retry.features.order.rules.members import Order
from durable_retry.features.outbox.names import OUTBOX
from tests.support.builders import NOON


def in_order(
    key: str, on_failure: OrderOnFailure = OrderOnFailure.BLOCK, **place: Any
) -> dict[str, dict[str, Any]]:
    """Return the parts of an operation with an order key; `place` is its `number` and `after`."""
    return {ORDER: Order(key=key, on_failure=on_failure, **place).to_json()}


def followed_by(*events: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an operation with events of the submission."""
    return {"parts": {OUTBOX: {"on_success": list(events)}}}


def a_lane(name: str, front_since: datetime, *, waiting: int = 0, blocked: bool = True) -> Lane:
    """Return the lane of an order key; `blocked` by the dead letter of its front."""
    lane = joined(Lane(order_key=name), Place(f"op-{name}", to_ms(NOON), 1))
    for number in range(waiting):
        lane = joined(lane, Place(f"op-{name}-{number}", to_ms(NOON) + number, 0))
    if blocked:
        lane = left(lane, Place(f"op-{name}", to_ms(NOON), 1), f"dl-{name}")
    return replace(lane, front_since=front_since)
