"""A handler with steps; the tests name this module in the app setting HANDLERS."""

from pydantic import BaseModel, ConfigDict

import durable_retry
from durable_retry.handlers import Call, Outcome, Rejected, TableWrite, Transient


class Trip(BaseModel):
    """A trip; its second step fails until it has made so many attempts."""

    model_config = ConfigDict(extra="forbid")

    hotel_attempts: int = 1
    max_attempts: int = 8


@durable_retry.operation("book-trip", dependency="flaky")
async def book_trip(trip: Trip, call: Call) -> dict[str, str]:
    """Two remembered steps, the second with a policy of its own."""
    flight = await call.step("flight", book, "flight")
    policy = {"max_attempts": trip.max_attempts, "initial_seconds": 0.05}
    return {"flight": flight, "hotel": await call.step("hotel", book_hotel, trip, retry=policy)}


async def book(what: str, call: Call) -> str:
    (await call.client.post("/echo")).raise_for_status()
    return f"{what} {call.key}"


async def book_hotel(trip: Trip, call: Call) -> str:
    if call.attempt < trip.hotel_attempts:
        raise Transient("no room yet")
    return await book("hotel", call)


class Parcel(BaseModel):
    """A parcel; the target recognizes its requests by `case`."""

    case: str
    method: str


@durable_retry.operation("ship-parcel", dependency="once")
async def ship_parcel(parcel: Parcel, call: Call) -> str:
    """A request that may be sent once only, or a read, then a step that waits for its turn."""
    (await call.client.request(parcel.method, "/echo", params={"case": parcel.case})).raise_for_status()
    return await call.step("ship", ship, dependency="narrow")


async def ship(call: Call) -> str:
    await call.client.get("/hang/1", params={"seconds": 0.5})
    return call.key


@durable_retry.operation("pay-order", dependency="flaky")
def pay_order(order: str, call: Call) -> Outcome[None]:
    """Mark an order as paid that is pending, or say why it is not."""
    if call.commit_conflict is not None:
        raise Rejected(call.commit_conflict.detail)
    paid = TableWrite(
        table="Swaps",
        partition_key="swaps",
        row_key=order,
        values={"status": "Paid"},
        mode="update",
        only_if={"status": "Pending"},
    )
    return Outcome(None, writes=[paid])


@durable_retry.operation("send-money", dependency="once")
async def send_money(case: str, call: Call) -> str:
    """A request that may be sent once only; the answer to the first one is lost."""
    key = {"Idempotency-Key": case}
    sent = await call.client.post("/drop/1", params={"when": "after_body"}, headers=key)
    return str(sent.status_code)


@send_money.lookup(settle_seconds=0.5)
async def find_money(case: str, call: Call) -> str | None:
    """Look at what the target got; it finds no case that begins with `lost`."""
    if case.startswith("lost"):
        return None
    answer = await call.client.get(f"/counts/{case}")
    return f"found {answer.json()['count']} for {call.key}"
