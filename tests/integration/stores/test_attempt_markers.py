import asyncio

import pytest

from stores.attempt_markers import Marked, mark_attempt, note_outcome
from tests.operation_stage import START

pytestmark = pytest.mark.usefixtures("storage")


async def test_the_first_execution_of_an_attempt_may_make_it() -> None:
    assert await mark_attempt("op-first", 1, START) is None


async def test_a_second_execution_finds_that_nobody_knows_how_it_ended() -> None:
    await mark_attempt("op-second", 1, START)
    assert await mark_attempt("op-second", 1, START) == Marked(None)


async def test_a_second_execution_finds_the_outcome_that_was_noted() -> None:
    await mark_attempt("op-noted", 1, START)
    await note_outcome("op-noted", 1, {"status_code": 201})
    assert await mark_attempt("op-noted", 1, START) == Marked({"status_code": 201})


async def test_attempts_and_operations_have_markers_of_their_own() -> None:
    assert await mark_attempt("op-a", 1, START) is None
    assert await mark_attempt("op-a", 2, START) is None
    assert await mark_attempt("op-b", 1, START) is None


async def test_of_executions_at_the_same_time_one_may_make_the_attempt() -> None:
    marked = await asyncio.gather(*(mark_attempt("op-race", 1, START) for _ in range(10)))
    assert marked.count(None) == 1
