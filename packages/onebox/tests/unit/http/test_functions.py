import asyncio

from onebox.host_json import Http
from onebox.http.functions import Admission


def admission(*, outstanding: int = -1, concurrent: int = -1) -> Admission:
    return Admission(Http(maxOutstandingRequests=outstanding, maxConcurrentRequests=concurrent))


async def test_without_limits_nothing_is_refused_and_nothing_waits() -> None:
    free = admission()
    async with free, free:
        assert not free.is_full


async def test_one_over_the_limit_is_refused_until_another_is_answered() -> None:
    limited = admission(outstanding=2)
    async with limited:
        async with limited:
            assert limited.is_full
        assert not limited.is_full


async def test_what_may_not_run_yet_waits_and_counts_as_outstanding() -> None:
    limited = admission(outstanding=2, concurrent=1)
    entered = asyncio.Event()

    async def second() -> None:
        async with limited:
            entered.set()

    async with limited:
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0)
        assert limited.is_full
        assert not entered.is_set()
    await waiting
    assert entered.is_set()
    assert not limited.is_full


async def test_a_request_that_gives_up_waiting_counts_no_more() -> None:
    limited = admission(outstanding=2, concurrent=1)
    async with limited:
        waiting = asyncio.create_task(limited.__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not limited.is_full
