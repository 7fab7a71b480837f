"""When a request to terminate takes effect: with the next turn, as on Azure Storage."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import override

import durabletask.internal.orchestrator_service_pb2 as pb
import pytest

from onebox.clock import SystemClock
from onebox.hub import Hub
from onebox.hub.invoker import TurnRequest
from onebox.hub.model import Start, Status, now_us
from tests.support.onebox.backends import SDK_NOTICE
from tests.support.onebox.durable_app import WaitingInvoker
from tests.support.onebox.sample_app import make_app

pytestmark = SDK_NOTICE


class HeldInvoker(WaitingInvoker):
    """Lets a turn begin when the test says so, and says when it waits for that."""

    def __init__(self) -> None:
        super().__init__(make_app())
        self.may_go_on = asyncio.Event()
        self.waits = asyncio.Event()

    @override
    async def orchestrator(self, name: str, request: TurnRequest) -> pb.OrchestratorResponse:
        self.waits.set()
        await self.may_go_on.wait()
        return await super().orchestrator(name, request)


@pytest.fixture
def held() -> HeldInvoker:
    return HeldInvoker()


@pytest.fixture
async def hub(tmp_path: Path, held: HeldInvoker) -> AsyncIterator[Hub]:
    """A hub with an instance that waits for the event `go`, whose next turns are held."""
    hub = Hub(tmp_path / "hub.db", held, SystemClock())
    await hub.start()
    held.may_go_on.set()
    await hub.tasks.start(Start("one", "wait_for_go"))
    await hub.tasks.wait_started("one")
    await hub.settled()
    held.may_go_on.clear()
    held.waits.clear()
    yield hub
    held.may_go_on.set()
    await hub.stop()


def status_of(hub: Hub) -> Status:
    state = hub.tasks.get("one")
    assert state is not None
    return state.status


@pytest.mark.shows("H14")
async def test_a_terminated_instance_runs_until_its_next_turn(hub: Hub, held: HeldInvoker) -> None:
    await hub.tasks.terminate("one", '"enough"')
    await held.waits.wait()
    assert status_of(hub) is Status.RUNNING
    held.may_go_on.set()
    ended = await hub.tasks.wait_finished("one")
    assert (ended.status, ended.output) == (Status.TERMINATED, '"enough"')


async def test_a_turn_that_is_under_way_ends_before(hub: Hub, held: HeldInvoker) -> None:
    await hub.tasks.raise_event("one", "go", '"done"')
    await held.waits.wait()
    await hub.tasks.terminate("one", '"enough"')
    held.may_go_on.set()
    ended = await hub.tasks.wait_finished("one")
    assert (ended.status, ended.output) == (Status.COMPLETED, '"done"')


async def test_an_instance_that_is_scheduled_for_later_ends_at_once(hub: Hub, held: HeldInvoker) -> None:
    later_us = now_us(SystemClock()) + timedelta(hours=1) // timedelta(microseconds=1)
    await hub.tasks.start(Start("later", "no_steps", start_at_us=later_us))
    await hub.tasks.terminate("later", '"enough"')
    state = hub.tasks.get("later")
    assert state is not None
    assert (state.status, state.output) == (Status.TERMINATED, '"enough"')
    assert not held.waits.is_set(), "no turn of it"
