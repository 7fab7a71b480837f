from pydantic import BaseModel

import durable_retry
from durable_retry.handlers import Call


class Order(BaseModel):
    number: int


@durable_retry.operation("ship-order", dependency="warehouse")
async def ship_order(order: Order, call: Call) -> int:
    answer = await call.client.post("/fail/1", headers={"Idempotency-Key": call.key})
    answer.raise_for_status()
    return order.number
