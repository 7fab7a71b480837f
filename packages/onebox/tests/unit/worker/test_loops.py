import asyncio
import threading
from collections.abc import Iterator

import pytest
import uvloop

from onebox.worker.loops import AttemptClock, WorkerLoop


@pytest.fixture
def loop() -> Iterator[WorkerLoop]:
    """A loop on a thread of its own, ended with the test."""
    made = WorkerLoop()
    made.start()
    yield made
    made.stop()
    made._thread.join(10)
    made._loop.close()


async def test_a_coroutine_runs_on_the_other_thread_and_its_caller_gets_the_result(loop: WorkerLoop) -> None:
    async def thread() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    assert await asyncio.gather(*(loop.run(thread()) for _ in range(100))) == ["functions"] * 100


async def test_it_is_the_event_loop_of_the_azure_worker(loop: WorkerLoop) -> None:
    async def kind() -> type[asyncio.AbstractEventLoop]:
        return type(asyncio.get_running_loop())

    assert await loop.run(kind()) is uvloop.Loop


async def test_its_error_reaches_the_caller(loop: WorkerLoop) -> None:
    async def fail() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await loop.run(fail())


async def test_a_caller_that_is_cancelled_cancels_it(loop: WorkerLoop) -> None:
    began, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    caller = asyncio.create_task(loop.run(wait()))
    await asyncio.to_thread(began.wait, 10)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await asyncio.to_thread(ended.wait, 10)


async def test_its_own_cancellation_reaches_the_caller(loop: WorkerLoop) -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await loop.run(give_up())


async def test_what_is_out_of_time_is_cancelled_and_what_is_not_goes_on() -> None:
    limit, cancelled = AttemptClock(0.02), list[int]()

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def quick() -> str:
        return "done"

    late = [asyncio.create_task(limit.run(wait(number))) for number in range(3)]
    assert await limit.run(quick()) == "done"
    async with asyncio.timeout(60):
        results = await asyncio.gather(*late, return_exceptions=True)
    assert [type(each) for each in results] == [TimeoutError] * 3
    assert cancelled == [0, 1, 2]


async def test_a_limit_holds_again_after_nothing_has_run_for_long() -> None:
    limit = AttemptClock(0.01)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await limit.run(asyncio.Event().wait())


async def test_whoever_cancels_a_run_finds_it_cancelled() -> None:
    limit = AttemptClock(60)
    run = asyncio.create_task(limit.run(asyncio.Event().wait()))
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_a_run_that_ends_in_spite_of_its_limit_leaves_its_task_uncancelled() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"
        return "never"

    assert await AttemptClock(0.01).run(stubborn()) == "done"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
