"""An exception at any named point loses nothing and applies nothing twice."""

import asyncio
from pathlib import Path

import pytest

from onebox.hub import FaultPoint, Hub, HubSettings
from tests.support.onebox.backends import SDK_NOTICE, eventually, running_hub
from tests.support.onebox.durable_app import AppInvoker, WaitingInvoker
from tests.support.onebox.workload import (
    MIXED_COUNTER,
    OUTPUT,
    SIGNALS_COUNTER,
    Cut,
    call_until_success,
    counting_app,
    submit,
)

pytestmark = [pytest.mark.long, SDK_NOTICE]
IDS = [f"mixed-{number}" for number in range(4)]


@pytest.mark.parametrize("kind", [AppInvoker, WaitingInvoker])
@pytest.mark.parametrize("visit", [1, 4])
@pytest.mark.parametrize("point", FaultPoint)
async def test_all_work_ends_once(
    point: FaultPoint, visit: int, kind: type[AppInvoker], tmp_path: Path
) -> None:
    struck = asyncio.Event()

    def strike() -> None:
        struck.set()
        raise RuntimeError(f"cut at {point}")

    log = tmp_path / "runs.log"
    invoker, settings = kind(counting_app(log)), HubSettings(ride_seconds=0.004)
    async with running_hub(tmp_path, invoker, settings=settings, faults=Cut(point, visit, strike)) as hub:
        async with asyncio.timeout(60):
            await call_until_success(lambda: submit(hub.tasks, "rounds", "rounds", "3"))
            for instance_id in IDS:
                await call_until_success(lambda each=instance_id: submit(hub.tasks, "mixed", each))
                await call_until_success(lambda each=instance_id: hub.tasks.raise_event(each, "go", None))
            for instance_id in IDS:
                state = await hub.tasks.wait_finished(instance_id)
                assert state.output == OUTPUT
            await hub.tasks.wait_finished("rounds")
            await eventually(lambda: _holds(hub, SIGNALS_COUNTER, "3"))
            assert await _holds(hub, MIXED_COUNTER, str(len(IDS)))
    assert struck.is_set(), "the point was never visited"
    expected = 2 * len(IDS) + 3
    # A group may hold the result of one activity of each instance, any other point is that of one work item.
    cut = len(IDS) + 1 if point is FaultPoint.GROUP_FILLED else 1
    assert expected <= len(log.read_text().split()) <= expected + cut, "only what was cut may run again"


async def _holds(hub: Hub, entity_id: str, state: str) -> bool:
    entity = hub.tasks.get_entity(entity_id)
    return entity is not None and entity.state == state
