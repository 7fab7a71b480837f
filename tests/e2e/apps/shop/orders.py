"""A handler of the shop's own."""

from pydantic import BaseModel

from durable_retry.handlers import Call, operation_handler


class Order(BaseModel):
    """What to ship."""

    number: int


@operation_handler("ship-order", dependency="warehouse", input_model=Order)
async def ship_order(order: Order, call: Call) -> int:
    """Ship an order."""
    answer = await call.client.post("/fail/1", headers={"Idempotency-Key": call.key})
    answer.raise_for_status()
    return order.number
