from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.names import Category, OperationState
from durable_retry.hub import task_hub as instance_pages
from durable_retry.hub.task_hub import Selection
from durable_retry.operations.actions import submit
from durable_retry.operations.status import find_status
from durable_retry_console.states import OperationPreview, preview_of
from tests.support.builders import an_operation, failing
from tests.support.hub import TaskHubStage
from tests.support.narrowing import existing
from tests.support.polling import until

WAIT_SECONDS = 20
COUNT, ROWS = 45, 20


async def finished(hub: TaskHubStage, operation_id: str) -> None:
    assert await hub.binding.wait_for_end(operation_id, WAIT_SECONDS) is not None


async def seen(hub: TaskHubStage, **wanted: Any) -> dict[str, OperationPreview]:
    instances, following = await hub.binding.instance_page(Selection(**wanted), None)
    while following is not None:
        more, following = await hub.binding.instance_page(Selection(**wanted), following)
        instances += more
    return {each.instanceId: preview_of(each) for each in instances}


async def test_a_scan_reads_every_page(task_hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_pages, "LIGHT_ROWS", ROWS)
    wanted = [f"op-{number:02}" for number in range(COUNT)]
    for operation_id in wanted:
        await submit(task_hub.binding, an_operation(deadline_in=None, operation_id=operation_id))
    assert list(await seen(task_hub)) == wanted


async def test_a_scan_can_leave_out_what_is_older_and_what_is_younger(task_hub: TaskHubStage) -> None:
    await submit(task_hub.binding, an_operation(deadline_in=None))
    instance = existing(await task_hub.binding.read_instance("op-test"))
    assert await seen(task_hub, created_after=instance.created_at + timedelta(seconds=1)) == {}
    assert await seen(task_hub, created_before=instance.created_at) == {}


async def test_a_preview_agrees_with_the_status_document(task_hub: TaskHubStage) -> None:
    task_hub.answer = failing(0)
    await submit(task_hub.binding, an_operation(deadline_in=None, operation_id="op-good"))
    await finished(task_hub, "op-good")
    task_hub.answer = failing(99, Category.MALFORMED, 422)
    await submit(task_hub.binding, an_operation(deadline_in=None, operation_id="op-bad"))
    await finished(task_hub, "op-bad")
    task_hub.answer = failing(99)
    for operation_id in ("op-waits", "op-killed"):
        await submit(task_hub.binding, an_operation(deadline_in=None, operation_id=operation_id))
        await until_waiting(task_hub, operation_id)
    await (await task_hub.binding.client()).terminate_orchestration("op-killed")
    await finished(task_hub, "op-killed")

    previews = await seen(task_hub)
    for operation_id, preview in previews.items():
        document = existing(await find_status(task_hub.binding, operation_id))
        names = ("status", "dependency")
        assert [getattr(preview, name) for name in names] == [document[name] for name in names]
    states = {operation_id: preview.status for operation_id, preview in previews.items()}
    assert states == {
        "op-good": OperationState.SUCCEEDED,
        "op-bad": OperationState.DEAD_LETTERED,
        "op-waits": OperationState.WAITING_RETRY,
        "op-killed": OperationState.DEAD_LETTERED,
    }


async def until_waiting(hub: TaskHubStage, operation_id: str) -> None:
    async def waits() -> bool:
        return (await seen(hub))[operation_id].status is OperationState.WAITING_RETRY

    await until(waits)
