"""What belongs to one event loop, and how much a function does at once."""

import asyncio

import pytest

from durable_retry.concurrency import LoopOwned, map_bounded


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
