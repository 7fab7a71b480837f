import asyncio
import threading
from collections.abc import Iterator

import pytest

from onebox.hub.commit_thread import CommitThread


@pytest.fixture
def thread() -> Iterator[CommitThread]:
    made = CommitThread()
    yield made
    made.close()


async def test_calls_run_in_turn_on_one_other_thread(thread: CommitThread) -> None:
    ran: list[tuple[int, threading.Thread]] = []

    def note(number: int) -> None:
        ran.append((number, threading.current_thread()))

    await asyncio.gather(*(thread.run(lambda number=number: note(number)) for number in range(5)))  # type: ignore[misc]
    assert [number for number, _ in ran] == [0, 1, 2, 3, 4]
    (other,) = {on for _, on in ran}
    assert other is not threading.current_thread()


async def test_a_caller_gets_what_its_call_raised_and_the_next_one_runs(thread: CommitThread) -> None:
    def fail() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await thread.run(fail)
    await thread.run(lambda: None)


async def test_a_call_whose_caller_gave_up_goes_on_to_its_end(thread: CommitThread) -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        release.wait(10)
        ended.set()

    caller = asyncio.create_task(thread.run(work))
    assert await asyncio.to_thread(begun.wait, 10)
    caller.cancel()
    release.set()
    await thread.run(lambda: None)
    assert ended.is_set()
    assert caller.cancelled()


def test_closing_waits_for_a_call_though_its_event_loop_is_gone() -> None:
    thread, release, ended = CommitThread(), threading.Event(), threading.Event()

    def work() -> None:
        release.wait(10)
        ended.set()

    async def begin() -> None:
        await asyncio.wait([asyncio.create_task(thread.run(work))], timeout=0)

    asyncio.run(begin())
    release.set()
    thread.close()
    assert ended.is_set()


def test_one_that_ran_nothing_closes_at_once() -> None:
    CommitThread().close()
