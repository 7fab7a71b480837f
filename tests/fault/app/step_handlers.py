"""Handlers with two remembered steps, of a dependency that deduplicates and of one that does not."""

from pydantic import BaseModel

from durable_retry.handlers import Call, operation_handler


class Case(BaseModel):
    """What the target recognizes the requests of a test by."""

    case: str


async def send(case: str, call: Call) -> str:
    """One request that changes something."""
    answer = await call.client.post("/echo", params={"case": case})
    answer.raise_for_status()
    return case


async def both(given: Case, call: Call) -> str:
    """Charge, and then mail."""
    charged = await call.step("charge", send, f"{given.case}-charge!")
    return await call.step("mail", send, f"{charged.removesuffix('-charge!')}-mail!")


operation_handler("both", dependency="flaky", input_model=Case)(both)


@operation_handler("both-unsafe", dependency="unsafe", input_model=Case)
async def both_unsafe(given: Case, call: Call) -> str:
    """The same, where nothing may be sent twice."""
    return await both(given, call)
