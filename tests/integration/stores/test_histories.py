import asyncio

import pytest

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.histories.list import histories as list_histories
from durable_retry.features.histories.replay import RecordedHistory, replayed
from durable_retry.hub import task_hub as hub_module
from durable_retry.operations.actions import submit
from orchestrators.operation import operation
from tests.replay.with_a_wait import with_a_wait
from tests.support.builders import an_operation, failing
from tests.support.hub import TaskHubStage
from tests.support.narrowing import existing

WAIT_SECONDS = 20


async def listed(hub: TaskHubStage, *, completed: bool = False) -> dict[str, RecordedHistory]:
    token, histories = None, dict[str, RecordedHistory]()
    while True:
        page = await list_histories(hub.binding, token, completed=completed)
        histories |= {each.instance_id: RecordedHistory.read(each.to_json()) for each in page.items}
        if page.next_cursor is None:
            return histories
        token = page.next_cursor


async def test_what_is_under_way_is_listed_and_fits_its_code(
    task_hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "_HEAVY_ROWS", 2)
    await submit(task_hub.binding, an_operation(operation_id="op-done", key="done", deadline_in=None))
    await task_hub.binding.wait_for_end("op-done", WAIT_SECONDS)
    task_hub.answer = failing(99)
    waiting = {f"op-{number}" for number in range(3)}
    for name in waiting:
        await submit(task_hub.binding, an_operation(operation_id=name, key=name, deadline_in=None))
    async with asyncio.timeout(WAIT_SECONDS):
        while (under_way := await listed(task_hub)).keys() != waiting:  # each has had its first turn
            assert "op-done" not in under_way
            await asyncio.sleep(0.02)
    both = await listed(task_hub, completed=True)
    assert both.keys() == {"op-done", *waiting}
    assert both["op-done"].has_completed
    assert [replayed(operation, history).difference for history in both.values()] == [None] * 4
    assert existing(replayed(with_a_wait(operation), both["op-done"]).difference).code == "a timer"


async def test_an_instance_that_is_gone_has_no_history(task_hub: TaskHubStage) -> None:
    assert await task_hub.binding.read_history("op-gone") == []


async def test_a_cursor_of_another_list_is_a_mistake_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise TaskHubUnavailableError("the task hub answered INVALID_ARGUMENT")

    monkeypatch.setattr(hub_module.TaskHub, "instance_page", refuse)
    with pytest.raises(InvalidInputError, match="/cursor"):
        await list_histories(hub_module.TaskHub(""), "other", completed=False)
    with pytest.raises(TaskHubUnavailableError):
        await list_histories(hub_module.TaskHub(""), None, completed=False)
