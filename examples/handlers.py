"""An example handler to copy: see docs/handlers.md."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

import durable_retry
from durable_retry import Event
from durable_retry.handlers import Call, Outcome, TableWrite


class PlaceOrder(BaseModel):
    """Input of the handler `place-order`."""

    model_config = ConfigDict(extra="forbid")

    order: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
    customer: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
    amount: Annotated[int, Field(gt=0)]
    path: Annotated[str, Field(pattern=r"^/[a-z0-9/]*$")] = "/echo"


@durable_retry.operation("place-order", dependency="flaky")
async def place_order(order: PlaceOrder, call: Call) -> Outcome:
    """Ask a service for a price, then keep the order and announce it, both or neither."""
    answer = await call.client.post(order.path, json={"order": order.order, "amount": order.amount})
    answer.raise_for_status()  # The status decides what happens next, and `Retry-After` is honoured.
    kept = TableWrite(
        table="Orders",
        partition_key=order.customer,
        row_key=order.order,
        values={"amount": order.amount, "key": call.key},
    )
    placed = Event.to_queue("order-events", "order.placed", {"order": order.order})
    return Outcome({"order": order.order, "attempt": call.attempt}, writes=[kept], events=[placed])
