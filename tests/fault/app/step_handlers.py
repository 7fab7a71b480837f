from pydantic import BaseModel

import durable_retry
from durable_retry.handlers import Call


class Case(BaseModel):
    """What the target recognizes the requests of a test by."""

    case: str


async def send(case: str, call: Call) -> str:
    """One request that changes something."""
    answer = await call.client.post("/echo", params={"case": case})
    answer.raise_for_status()
    return case


async def both(given: Case, call: Call) -> str:
    charged = await call.step("charge", send, f"{given.case}-charge!")
    return await call.step("mail", send, f"{charged.removesuffix('-charge!')}-mail!")


durable_retry.operation("both", dependency="flaky")(both)


@durable_retry.operation("both-unsafe", dependency="unsafe")
async def both_unsafe(given: Case, call: Call) -> str:
    """The same, where nothing may be sent twice."""
    return await both(given, call)


@durable_retry.operation("charge-unsafe", dependency="unsafe")
async def charge_unsafe(given: Case, call: Call) -> str:
    """One request outside of a step, where nothing may be sent twice."""
    return await send(f"{given.case}!", call)


@durable_retry.operation("charge", dependency="flaky")
async def charge(given: Case, call: Call) -> str:
    """The same at a dependency that deduplicates."""
    return await send(f"{given.case}!", call)
