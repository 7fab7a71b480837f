import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from durable_retry.runtime.concurrency import (
    QUICK_BYTES,
    LoopOwned,
    map_bounded,
    raise_first,
    read_beside,
    run_each,
    settle_all,
)


def test_each_loop_has_a_value_of_its_own() -> None:
    owned = LoopOwned[list[int]](list)

    async def look() -> list[int]:
        assert owned.known() is None
        assert owned.get() is owned.get() is owned.known()
        return owned.get()

    assert asyncio.run(look()) is not asyncio.run(look())


async def test_what_was_taken_is_made_anew() -> None:
    owned = LoopOwned[list[int]](list)
    owned.get().append(1)
    assert owned.take() == [1]
    assert owned.get() == []


@pytest.mark.parametrize(("size_bytes", "is_here"), [(QUICK_BYTES, True), (QUICK_BYTES + 1, False)])
async def test_what_takes_long_is_read_in_a_thread(size_bytes: int, is_here: bool) -> None:  # noqa: FBT001 # drawn
    reader = await read_beside(threading.current_thread, size_bytes)
    assert (reader is threading.current_thread()) == is_here


async def test_no_more_run_at_once_and_results_keep_their_order() -> None:
    running, most = 0, 0

    async def doubled(number: int) -> int:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        for _ in range(9 - number):  # the later ones end first
            await asyncio.sleep(0)
        running -= 1
        return 2 * number

    assert await map_bounded(doubled, range(9), 3) == [2 * number for number in range(9)]
    assert most == 3


async def test_the_first_failure_is_raised() -> None:
    async def fail(number: int) -> None:
        raise ValueError(str(number))

    with pytest.raises(ValueError, match="1"):
        await map_bounded(fail, [1, 2], 1)


async def test_all_are_waited_for_and_errors_stand_beside_the_results() -> None:
    async def halved(number: int) -> int:
        if number % 2:
            raise ValueError(number)
        await asyncio.sleep(0)
        return number // 2

    results, errors = await settle_all(halved, range(5), 2)
    assert (results, [str(each) for each in errors]) == ([0, 1, 2], ["1", "3"])


async def test_steps_behind_one_that_fails_run_and_its_error_is_raised_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ran: list[str] = []

    def step(name: str, error: Exception | None = None) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            ran.append(name)
            if error is not None:
                raise error

        return run

    with pytest.raises(KeyError, match="first"):
        await run_each([step("a", KeyError("first")), step("b"), step("c", OSError("second")), step("d")])
    assert ran == ["a", "b", "c", "d"]
    assert [record.getMessage() for record in caplog.records] == ["1 failed as well: second"]


def test_errors_of_one_cause_are_one_line_and_those_of_another_kind_have_their_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(OSError, match="away"):
        raise_first([*(OSError("away") for _ in range(33)), OSError("refused"), KeyError("a bug")])
    assert [(record.getMessage(), record.exc_info is None) for record in caplog.records] == [
        ("32 failed as well: away", True),
        ("1 failed as well: refused", True),
        ("1 failed as well: 'a bug'", False),
    ]
