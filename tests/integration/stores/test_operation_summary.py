import asyncio

import pytest

from durable_retry.services.submit import submit
from durable_retry.stores import operations as summaries
from durable_retry.stores.operations import operation_summary
from durable_retry.stores.task_hub import wait_for_operation
from tests.support.builders import an_operation, failing
from tests.support.hub import TaskHubStage

WAIT_SECONDS = 20
WINDOW_SECONDS = 900


async def ended(hub: TaskHubStage, *ids: str) -> None:
    for operation_id in ids:
        await submit(hub.binding, an_operation(deadline_in=None, operation_id=operation_id), is_new_key=True)
        assert await wait_for_operation(hub.binding, operation_id, WAIT_SECONDS) is not None


async def test_what_ended_and_what_goes_on_is_counted(task_hub: TaskHubStage) -> None:
    await ended(task_hub, "op-1", "op-2")
    task_hub.answer = failing(99)
    await submit(task_hub.binding, an_operation(deadline_in=None, operation_id="op-waits"), is_new_key=True)
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            summary = await operation_summary(task_hub.binding, WINDOW_SECONDS)
            if summary["by_status"]["waiting_retry"]:
                break
            await asyncio.sleep(0.1)
    assert (summary["operations"], summary["complete"]) == (3, True)
    assert summary["by_status"]["succeeded"] == 2
    assert summary["by_dependency"]["payments"]["operations"] == 3
    assert sum(part["by_status"]["succeeded"] for part in summary["buckets"]) == 2
    assert summary["unfinished"]["complete"]
    assert summary["unfinished"]["by_dependency"]["payments"]["waiting_retry"] == 1
    (following,) = summary["unfinished"]["next_attempts"]
    assert (following["operation_id"], following["status"]) == ("op-waits", "waiting_retry")
    assert (following["key"], following["dependency"]) == (an_operation().key, "payments")


async def test_of_too_many_the_last_part_of_the_window_is_a_sample_and_says_so(
    task_hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries, "MAX_SCANNED", 2)
    await ended(task_hub, "op-1", "op-2", "op-3")
    summary = await operation_summary(task_hub.binding, WINDOW_SECONDS)
    assert (summary["operations"], summary["complete"]) == (2, False)
    assert summary["bucket_seconds"] == pytest.approx(WINDOW_SECONDS / 8 / 48)


async def test_whoever_asks_at_the_same_time_gets_the_same_count(task_hub: TaskHubStage) -> None:
    asked = (operation_summary(task_hub.binding, WINDOW_SECONDS) for _ in range(5))
    first, *others = await asyncio.gather(*asked)
    assert all(other is first for other in others)


async def test_windows_asked_for_once_are_forgotten(task_hub: TaskHubStage) -> None:
    for seconds in range(60, 60 + 20):
        await operation_summary(task_hub.binding, seconds)
    desk = summaries._loop_caches[asyncio.get_running_loop()]
    assert len(desk.answers) == 16
