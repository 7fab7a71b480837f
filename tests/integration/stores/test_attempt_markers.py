import asyncio
from typing import Any
from unittest.mock import Mock

import pytest
from azure.core.exceptions import HttpResponseError, ServiceResponseError

from durable_retry.stores.operations.writes import Marked, insert_marker, write_outcome
from durable_retry.stores.storage import tables
from tests.support.builders import NOON

pytestmark = pytest.mark.usefixtures("storage")

INSERT = tables.insert_if_absent


async def test_the_first_execution_of_an_attempt_may_make_it() -> None:
    assert await insert_marker("op-first", 1, NOON) is None


async def test_a_second_execution_finds_that_nobody_knows_how_it_ended() -> None:
    await insert_marker("op-second", 1, NOON)
    assert await insert_marker("op-second", 1, NOON) == Marked(None)


async def test_a_second_execution_finds_the_outcome_that_was_noted() -> None:
    await insert_marker("op-noted", 1, NOON)
    await write_outcome("op-noted", 1, {"status_code": 201})
    assert await insert_marker("op-noted", 1, NOON) == Marked({"status_code": 201})


async def test_attempts_and_operations_have_markers_of_their_own() -> None:
    assert await insert_marker("op-a", 1, NOON) is None
    assert await insert_marker("op-a", 2, NOON) is None
    assert await insert_marker("op-b", 1, NOON) is None


async def test_of_executions_at_the_same_time_one_may_make_the_attempt() -> None:
    marked = await asyncio.gather(*(insert_marker("op-race", 1, NOON) for _ in range(10)))
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
        assert await insert_marker(f"op-lost-{answer}", 1, NOON) is None
    assert await insert_marker(f"op-lost-{answer}", 1, NOON) == Marked(None)


UNAVAILABLE = HttpResponseError("ServerBusy", response=Mock(status_code=503))


async def insert_and_answer_503(table: str, row: tables.Row) -> bool:
    assert await INSERT(table, row)
    raise UNAVAILABLE


async def read_503(*_: object) -> None:
    raise UNAVAILABLE


async def test_an_insert_that_is_answered_503_in_every_try_still_allows_this_execution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as fault:
        fault.setattr(tables, "insert_if_absent", insert_and_answer_503)
        assert await insert_marker("op-503", 1, NOON) is None
    assert await insert_marker("op-503", 1, NOON) == Marked(None)


async def unread_marker(name: str, execution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inserts a marker whose execution learns neither that it was inserted nor that it is there."""
    with monkeypatch.context() as fault:
        fault.setattr(tables, "insert_if_absent", insert_and_answer_503)
        fault.setattr(tables, "read_version", read_503)
        with pytest.raises(HttpResponseError):
            await insert_marker(name, 1, NOON, execution)


async def test_of_later_executions_one_takes_over_the_marker_of_one_that_sent_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await unread_marker("op-unread", "first", monkeypatch)
    marked = await asyncio.gather(*(insert_marker("op-unread", 1, NOON, unsent=["first"]) for _ in range(3)))
    assert marked.count(None) == 1
    assert await insert_marker("op-unread", 1, NOON, unsent=["first"]) == Marked(None)


async def test_a_marker_that_may_stand_for_a_call_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    await unread_marker("op-kept", "first", monkeypatch)
    assert await insert_marker("op-kept", 1, NOON, unsent=["second"]) == Marked(None)


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
        assert await insert_marker("op-over", 1, NOON, unsent=["first"]) is None
    assert await insert_marker("op-over", 1, NOON, unsent=["first"]) == Marked(None)


async def test_an_insert_that_never_arrived_fails_and_leaves_no_marker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def lose(*_: object) -> bool:
        raise ServiceResponseError("the connection was reset")

    with monkeypatch.context() as fault:
        fault.setattr(tables, "insert_if_absent", lose)
        with pytest.raises(ServiceResponseError):
            await insert_marker("op-never", 1, NOON)
    assert await insert_marker("op-never", 1, NOON) is None
