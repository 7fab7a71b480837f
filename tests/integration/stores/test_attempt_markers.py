import asyncio
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from azure.core.exceptions import HttpResponseError, ServiceResponseError

from durable_retry.attempt.markers import insert_marker, take_commit, write_outcome
from durable_retry.features.handlers.starts import Starts, count_start
from durable_retry.rules.operations.keys import Life, OvertakenError, apart_ms
from durable_retry.storage import tables
from tests.support.builders import NOON, a_life

pytestmark = pytest.mark.usefixtures("storage")

INSERT = tables.insert_if_absent
RUN = a_life().run
UNKNOWN = (RUN, None)


async def met(life: Life, attempt: int, **more: Any) -> tuple[int, Any] | None:
    """Insert a marker; return the run and the outcome of the earlier execution that it meets."""
    marker = await insert_marker(life, attempt, **more)
    return None if marker is None else (marker.run, marker.outcome)


async def test_the_first_execution_of_an_attempt_may_make_it() -> None:
    assert await insert_marker(a_life("op-first"), 1, now=NOON) is None


async def test_a_second_execution_finds_that_nobody_knows_how_it_ended() -> None:
    await insert_marker(a_life("op-second"), 1, now=NOON)
    assert await met(a_life("op-second"), 1, now=NOON) == UNKNOWN


async def test_a_second_execution_finds_the_outcome_that_was_noted() -> None:
    await insert_marker(a_life("op-noted"), 1, now=NOON)
    await write_outcome("op-noted", 1, {"status_code": 201})
    assert await met(a_life("op-noted"), 1, now=NOON) == (RUN, {"status_code": 201})


async def test_attempts_and_operations_have_markers_of_their_own() -> None:
    assert await insert_marker(a_life("op-a"), 1, now=NOON) is None
    assert await insert_marker(a_life("op-a"), 2, now=NOON) is None
    assert await insert_marker(a_life("op-b"), 1, now=NOON) is None


async def test_of_executions_at_the_same_time_one_may_make_the_attempt() -> None:
    marked = await asyncio.gather(*(insert_marker(a_life("op-race"), 1, now=NOON) for _ in range(10)))
    assert marked.count(None) == 1


@pytest.mark.parametrize("answer", ["a conflict with itself", "none"])
async def test_an_insert_whose_answer_was_lost_still_allows_this_execution(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client library repeats a request without an answer, and may get a second none."""
    insert = tables.insert_if_absent

    async def insert_and_lose_the_answer(table: str, row: tables.Row) -> bool:
        assert await insert(table, row)
        if answer == "none":
            raise ServiceResponseError("the connection was reset")
        return await insert(table, row)

    with monkeypatch.context() as fault:
        fault.setattr(tables, "insert_if_absent", insert_and_lose_the_answer)
        assert await insert_marker(a_life(f"op-lost-{answer}"), 1, now=NOON) is None
    assert await met(a_life(f"op-lost-{answer}"), 1, now=NOON) == UNKNOWN


UNAVAILABLE = HttpResponseError("ServerBusy", response=Mock(status_code=503))


async def insert_and_answer_503(table: str, row: tables.Row) -> bool:
    assert await INSERT(table, row)
    raise UNAVAILABLE


async def test_an_insert_that_is_answered_503_in_every_try_still_allows_this_execution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as fault:
        fault.setattr(tables, "insert_if_absent", insert_and_answer_503)
        assert await insert_marker(a_life("op-503"), 1, now=NOON) is None
    assert await met(a_life("op-503"), 1, now=NOON) == UNKNOWN


async def unread_marker(name: str, execution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inserts a marker whose execution learns neither that it was inserted nor that it is there."""
    with monkeypatch.context() as fault:
        fault.setattr(tables, "insert_if_absent", insert_and_answer_503)
        fault.setattr(tables, "read_version", AsyncMock(side_effect=UNAVAILABLE))
        with pytest.raises(HttpResponseError):
            await insert_marker(a_life(name), 1, now=NOON, execution=execution)


async def test_of_later_executions_one_takes_over_the_marker_of_one_that_sent_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await unread_marker("op-unread", "first", monkeypatch)
    again = partial(met, a_life("op-unread"), 1, now=NOON, unsent=["first"])
    marked = await asyncio.gather(*(again() for _ in range(3)))
    assert marked.count(None) == 1
    assert await again() == UNKNOWN


async def test_a_marker_that_may_stand_for_a_call_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    await unread_marker("op-kept", "first", monkeypatch)
    assert await met(a_life("op-kept"), 1, now=NOON, unsent=["second"]) == UNKNOWN


async def test_a_takeover_that_is_answered_503_in_every_try_still_allows_this_execution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replace_version = tables.replace_version

    async def replace_and_answer_503(*given: Any) -> bool:
        assert await replace_version(*given)
        raise UNAVAILABLE

    await unread_marker("op-over", "first", monkeypatch)
    with monkeypatch.context() as fault:
        fault.setattr(tables, "replace_version", replace_and_answer_503)
        assert await insert_marker(a_life("op-over"), 1, now=NOON, unsent=["first"]) is None
    assert await met(a_life("op-over"), 1, now=NOON, unsent=["first"]) == UNKNOWN


async def test_an_insert_that_never_arrived_fails_and_leaves_no_marker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def lose(*_: object) -> bool:
        raise ServiceResponseError("the connection was reset")

    with monkeypatch.context() as fault:
        fault.setattr(tables, "insert_if_absent", lose)
        with pytest.raises(ServiceResponseError):
            await insert_marker(a_life("op-never"), 1, now=NOON)
    assert await insert_marker(a_life("op-never"), 1, now=NOON) is None


MINUTES = 60.0
EARLIER, LATER = a_life("op-lives", -11 * MINUTES), a_life("op-lives", 11 * MINUTES)


def of(owner: str, life: Life) -> Life:
    return replace(life, owner=owner)


async def test_another_start_of_the_same_life_meets_the_marker_and_its_outcome() -> None:
    first, second = a_life("op-same"), a_life("op-same", 9 * MINUTES)
    await insert_marker(first, 1, now=NOON)
    await write_outcome("op-same", 1, {"status_code": 201})
    assert await met(second, 1, now=NOON) == (first.run, {"status_code": 201})


async def test_a_later_life_replaces_the_marker_of_an_earlier_one_which_is_over_then() -> None:
    await insert_marker(of("op-over-again", EARLIER), 1, now=NOON)
    await write_outcome("op-over-again", 1, {"status_code": 201})
    later = of("op-over-again", LATER)
    assert await insert_marker(later, 1, now=NOON) is None
    assert await met(later, 1, now=NOON) == (LATER.run, None)
    with pytest.raises(OvertakenError, match=f"run {LATER.run} of this key has begun; run {EARLIER.run} is"):
        await insert_marker(of("op-over-again", EARLIER), 1, now=NOON)


async def test_lives_of_a_key_that_answers_for_seconds_are_seconds_apart() -> None:
    first = replace(a_life("op-short"), apart_ms=apart_ms(2))
    second = replace(first, run=first.run + 2_000)
    await insert_marker(first, 1, now=NOON)
    assert await insert_marker(second, 1, now=NOON) is None


async def test_starts_of_a_handler_are_counted_in_one_life_and_go_on_in_the_run_that_came_first() -> None:
    first, second = a_life("op-counted"), a_life("op-counted", 1)
    assert await count_start(first, 1, NOON) == Starts(1, first.run)
    assert await count_start(second, 1, NOON) == Starts(2, first.run)
    later = of("op-counted", LATER)
    assert await count_start(later, 1, NOON) == Starts(1, later.run)
    assert await count_start(later, 1, NOON) == Starts(2, later.run)
    with pytest.raises(OvertakenError):
        await count_start(first, 1, NOON)


async def test_two_starts_of_one_life_commit_as_the_run_that_came_first() -> None:
    first, second = a_life("op-taken"), a_life("op-taken", 1)
    assert await take_commit("op-taken", second, NOON) == second.run
    assert await take_commit("op-taken", first, NOON) == second.run
    assert await take_commit("op-taken", of("op-taken", LATER), NOON) == LATER.run
    with pytest.raises(OvertakenError):
        await take_commit("op-taken", first, NOON)


async def test_a_replay_overtakes_the_run_before_it_however_soon_it_comes() -> None:
    first, replay = a_life("op-replayed"), a_life("op-replayed.dl-1", 1)
    assert await take_commit("op-replayed", first, NOON) == first.run
    assert await take_commit("op-replayed", replay, NOON) == replay.run
    with pytest.raises(OvertakenError):
        await take_commit("op-replayed", first, NOON)
