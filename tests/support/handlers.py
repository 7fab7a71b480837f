"""Handlers that say each thing a handler can say; the tests name them in the app setting HANDLERS."""

from pydantic import BaseModel, ConfigDict

from durable_retry.handlers import Call, Rejected, Throttled, Transient, operation_handler


class Wish(BaseModel):
    """What a test wants to hear, and for how many attempts."""

    model_config = ConfigDict(extra="forbid")

    attempts: int = 1
    retry_after: float | None = None


@operation_handler("transient", dependency="flaky", input_model=Wish)
async def transient(wish: Wish, call: Call) -> str:
    """Raises Transient at first."""
    if call.attempt <= wish.attempts:
        raise Transient("not yet", retry_after=wish.retry_after)
    return call.key


@operation_handler("throttled", dependency="flaky", input_model=Wish)
async def throttled(wish: Wish, call: Call) -> int:
    """Raises Throttled at first."""
    if call.attempt <= wish.attempts:
        raise Throttled(retry_after=wish.retry_after)
    return call.attempt


@operation_handler("rejected", dependency="flaky", input_model=Wish)
async def rejected(_wish: Wish, _call: Call) -> None:
    """Raises Rejected."""
    raise Rejected("out of stock")


@operation_handler("broken", dependency="flaky", input_model=Wish)
async def broken(wish: Wish, call: Call) -> dict[str, object]:
    """Fails at first as a handler does that has a mistake."""
    if call.attempt <= wish.attempts:
        raise RuntimeError("quantity")
    return {"correlation_id": call.correlation_id, "has_time": 0 < call.seconds_left <= 5}
