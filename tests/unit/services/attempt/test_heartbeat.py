"""A heartbeat whose report is being stored while its attempt ends."""

import asyncio

from durable_retry.services.attempt.heartbeat import Heartbeat


async def test_a_report_that_is_being_stored_when_the_attempt_ends_is_not_lost() -> None:
    stored: list[str] = []
    is_storing = asyncio.Event()

    async def store(text: str) -> None:
        if not is_storing.is_set():
            is_storing.set()
            await asyncio.Event().wait()
        stored.append(text)

    heartbeat = Heartbeat(30.0, store, None)
    async with heartbeat.kept_alive(60.0):
        heartbeat.report(3)
        await is_storing.wait()
    assert stored == ["3"]
