"""What features keep of an operation, for operations that tests make."""

from collections.abc import Mapping
from typing import Any

from durable_retry.features.order.names import ORDER, OrderOnFailure
from durable_retry.features.order.rules.members import Order
from durable_retry.features.outbox.names import OUTBOX


def in_order(
    key: str, on_failure: OrderOnFailure = OrderOnFailure.BLOCK, **place: Any
) -> dict[str, dict[str, Any]]:
    """Return the parts of an operation with an order key; `place` is its `number` and `after`."""
    return {ORDER: Order(key=key, on_failure=on_failure, **place).to_json()}


def followed_by(*events: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an operation with events of the submission."""
    return {"parts": {OUTBOX: {"on_success": list(events)}}}
