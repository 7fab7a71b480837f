import asyncio
from functools import partial

import pytest

from durable_retry.runtime import clock, sharing
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
    assert await asyncio.gather(*others) == [0, 0, 0]


async def test_an_older_answer_stands_in_for_one_that_takes_long_unless_it_is_too_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharing, "_PATIENCE_SECONDS", 0.0)
    go, present = asyncio.Event(), 1_000.0

    async def slow() -> str:
        await go.wait()
        return "new"

    async def quick() -> str:
        return "old"

    ask = partial(shared, ("one",), slow, older_seconds=60.0)
    with clock.reading(clock.now, lambda: present):
        assert await shared(("one",), quick) == "old"
        present += 60.0
        assert await ask() == "old"
        present += 1.0
        late = asyncio.create_task(ask())
        await asyncio.sleep(0)
        assert not late.done()
        go.set()
        assert await late == "new"


async def test_an_answer_that_took_long_is_fresh_for_half_a_minute_at_most() -> None:
    present, made = 1_000.0, list[int]()

    async def make() -> int:
        nonlocal present
        present += 13.0
        made.append(len(made))
        return made[-1]

    with clock.reading(clock.now, lambda: present):
        assert await shared(("one",), make) == 0
        present += 29.0
        assert await shared(("one",), make) == 0
        present += 1.0
        assert await shared(("one",), make) == 1


async def test_what_fails_when_nobody_waits_any_more_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_PATIENCE_SECONDS", 0.0)
    go, answers = asyncio.Event(), iter(["old", "", "new"])

    async def make() -> str:
        answer = next(answers)
        if not answer:
            await go.wait()
            raise ConnectionError
        return answer

    ask = partial(shared, ("one",), make, seconds=0.0, factor=0.0, older_seconds=60.0)
    assert [await ask(), await ask()] == ["old", "old"]
    go.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await ask() == "new"
