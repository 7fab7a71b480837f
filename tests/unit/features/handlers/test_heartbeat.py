import asyncio
import contextlib

import pytest

from durable_retry.features.handlers.heartbeat import Heartbeat


async def test_a_report_that_is_being_stored_when_the_attempt_ends_is_not_lost() -> None:
    stored: list[str] = []
    is_storing = asyncio.Event()

    async def store(text: str) -> bool:
        if not is_storing.is_set():
            is_storing.set()
            await asyncio.Event().wait()
        stored.append(text)
        return True

    heartbeat = Heartbeat(30.0, store, None)
    async with heartbeat.kept_alive(60.0):
        heartbeat.report(3)
        await is_storing.wait()
    assert stored == ["3"]


@pytest.mark.shows("A15")
async def test_a_report_that_storage_did_not_take_is_stored_at_the_end() -> None:
    given: list[str] = []
    was_given = asyncio.Event()

    async def store(text: str) -> bool:
        given.append(text)
        was_given.set()
        return len(given) > 2

    heartbeat = Heartbeat(30.0, store, None)
    async with heartbeat.kept_alive(60.0):
        heartbeat.report(3)
        await was_given.wait()
    assert given == ["3", "3", "3"]


async def test_a_report_that_storage_did_not_take_is_stored_before_the_next_one() -> None:
    given: list[str] = []
    is_stored = asyncio.Event()

    async def store(text: str) -> bool:
        given.append(text)
        if len(given) > 1:
            is_stored.set()
        return is_stored.is_set()

    heartbeat = Heartbeat(0.02, store, None)  # reports are stored twice in this time
    with contextlib.suppress(TimeoutError):
        async with heartbeat.kept_alive(60.0):
            heartbeat.report(3)
            await is_stored.wait()
    assert given == ["3", "3"]
