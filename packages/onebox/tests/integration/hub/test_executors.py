"""Orchestrators that are kept between two turns.

That they answer as a replay does is checked in every other case of the hub: see `AppInvoker`.
"""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
import pytest

from onebox.hub.invoker import TurnRequest
from onebox.hub.model import Start
from onebox.worker.executors import Orchestrators
from tests.support.onebox.backends import SDK_NOTICE, running_hub
from tests.support.onebox.durable_app import AppInvoker
from tests.support.onebox.sample_app import make_app

pytestmark = SDK_NOTICE
ALWAYS = 1_000_000


async def replays_of_a_chain(folder: Path, executors: Orchestrators) -> tuple[int, int]:
    """Run an orchestration of three activities; return how many turns it took, and how many were replays."""
    invoker = AppInvoker(make_app())
    invoker.executors = executors
    async with running_hub(folder, invoker) as hub:
        await hub.tasks.start(Start("one", "chain", input="1"))
        assert (await hub.tasks.wait_finished("one")).output == "8"
    return invoker.turns, executors.replays


async def test_an_orchestration_goes_on_without_replays(tmp_path: Path) -> None:
    executors = Orchestrators(replayed_first=0, replayed_then=ALWAYS)
    assert await replays_of_a_chain(tmp_path, executors) == (4, 1)


async def test_what_is_not_in_memory_any_more_is_replayed(tmp_path: Path) -> None:
    executors = Orchestrators(limit_bytes=0, replayed_first=0, replayed_then=ALWAYS)
    assert await replays_of_a_chain(tmp_path, executors) == (4, 4)


class LeavingInvoker(AppInvoker):
    """Leaves what it kept of an orchestration to another, as the invoker does while its code is slow."""

    async def orchestrator(self, name: str, request: TurnRequest) -> pb.OrchestratorResponse:
        self.executors.forget(request.instance_id)
        return await super().orchestrator(name, request)


async def test_what_another_runs_is_not_kept(tmp_path: Path) -> None:
    invoker = LeavingInvoker(make_app())
    async with running_hub(tmp_path, invoker) as hub:
        await hub.tasks.start(Start("one", "chain", input="1"))
        await hub.tasks.wait_finished("one")
    assert (invoker.turns, invoker.executors.replays) == (4, 4)
    assert not invoker.executors._kept


@pytest.mark.parametrize(("first", "then", "replays"), [(2, ALWAYS, 3), (0, 2, 2)])
async def test_first_turns_and_one_in_a_while_are_replayed(
    tmp_path: Path, first: int, then: int, replays: int
) -> None:
    executors = Orchestrators(replayed_first=first, replayed_then=then)
    assert await replays_of_a_chain(tmp_path, executors) == (4, replays)


class ForgetfulInvoker(AppInvoker):
    """Runs each turn twice, as after a commit that failed."""

    async def orchestrator(self, name: str, request: TurnRequest) -> pb.OrchestratorResponse:
        await super().orchestrator(name, request)
        return await super().orchestrator(name, request)


async def test_a_turn_that_was_not_committed_is_replayed(tmp_path: Path) -> None:
    invoker = ForgetfulInvoker(make_app())
    async with running_hub(tmp_path, invoker) as hub:
        await hub.tasks.start(Start("one", "chain", input="1"))
        assert (await hub.tasks.wait_finished("one")).output == "8"
    assert invoker.executors.replays == 1 + 4


class WatchedOrchestrators(Orchestrators):
    """Notes the contexts and the waiting tasks that the SDK makes, without keeping them."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes, replayed_first=0)
        self.made: list[weakref.ref[Any]] = []

    def _replay(self, request: TurnRequest) -> tuple[Any, Any]:
        kept, result = super()._replay(request)
        context = kept.executor.context
        self.made += map(weakref.ref, [context, *context._pending_tasks.values()])
        return kept, result


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("limit_bytes", [1_000_000, 0])
async def test_what_is_over_is_freed_without_the_garbage_collector(tmp_path: Path, limit_bytes: int) -> None:
    invoker = AppInvoker(make_app())
    invoker.executors = executors = WatchedOrchestrators(limit_bytes)
    async with running_hub(tmp_path, invoker) as hub:
        await hub.tasks.start(Start("timer", "sleeper", input="0.01"))
        await hub.tasks.start(Start("event", "wait_for_go"))
        await hub.tasks.start(Start("either", "event_or_timer", input="60"))
        await hub.tasks.wait_finished("timer")
        for instance in ("event", "either"):
            await hub.tasks.terminate(instance, None)
            await hub.tasks.wait_finished(instance)
    assert len(executors.made) >= 4
    assert [each() for each in executors.made if each() is not None] == []
