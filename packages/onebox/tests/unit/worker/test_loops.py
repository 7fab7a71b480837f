import asyncio
import threading
from collections.abc import Iterator

import pytest

from onebox.worker.loops import WorkerLoop


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


async def test_its_error_reaches_the_caller(loop: WorkerLoop) -> None:
    async def fail() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await loop.run(fail())


async def test_a_caller_that_runs_there_goes_on_in_its_own_task(loop: WorkerLoop) -> None:
    async def task() -> asyncio.Task[object] | None:
        return asyncio.current_task()

    async def same() -> bool:
        return asyncio.current_task() is await loop.run(task())

    assert await loop.run(same())


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


async def test_the_caller_has_its_result_before_what_it_made_ready_runs(loop: WorkerLoop) -> None:
    answered = threading.Event()
    others: list[asyncio.Task[bool]] = []

    async def other() -> bool:
        return answered.wait(10)

    async def make_ready() -> None:
        others.append(asyncio.create_task(other()))

    await loop.run(make_ready())
    answered.set()

    async def seen() -> bool:
        return await others[0]

    assert await loop.run(seen())
