"""A handler whose error quotes a secret; in a module of its own, since importing it registers it."""

from pydantic import BaseModel

import durable_retry
from durable_retry.handlers import Call


class Given(BaseModel):
    """The input of the handler."""

    seen: str
    password: str
    access_token: str


@durable_retry.operation("spill", dependency="guarded")
async def spill(given: Given, call: Call) -> None:
    """Fail with an error that quotes the address of a request, as httpx's own do."""
    answer = await call.client.get("/status/500", params={"access_token": given.access_token})
    answer.raise_for_status()
