import asyncio

import pytest

from durable_retry.runtime import sharing
from durable_retry.runtime.sharing import shared


async def test_a_failure_is_not_kept_and_what_was_asked_for_once_is_forgotten() -> None:
    async def fail() -> str:
        raise ConnectionError

    async def answer() -> str:
        return "yes"

    with pytest.raises(ConnectionError):
        await shared(("one",), fail)
    assert await shared(("one",), answer) == "yes"
    for number in range(100):
        await shared((number,), answer)
    assert len(sharing._shared.get()) <= 32


async def test_who_asks_while_an_answer_is_made_gets_that_one_also_when_the_first_has_gone() -> None:
    made = list[int]()

    async def make() -> int:
        made.append(len(made))
        await asyncio.sleep(0)
        return made[-1]

    first, *others = (asyncio.create_task(shared(("one",), make)) for _ in range(4))
    await asyncio.sleep(0)
    first.cancel()
    assert await asyncio.gather(*others) == [1, 1, 1]
