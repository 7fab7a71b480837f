"""What the hub does where Microsoft's in-memory backend does not do what the Functions host does."""

import asyncio
import sqlite3
from collections.abc import Generator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
import grpc
import pytest
from durabletask import task
from durabletask.client import OrchestrationQuery, OrchestrationStatus, TaskHubGrpcClient
from durabletask.entities import EntityInstanceId

from onebox.clock import SystemClock
from onebox.hub import Hub, HubInUse, HubSettings
from onebox.hub.errors import StoreTooNew
from onebox.hub.model import Start, Status
from tests.integration.hub.backends import SDK_NOTICE, Backend, eventually, running_hub
from tests.integration.hub.durable_app import AppInvoker
from tests.integration.hub.sample_app import make_app

pytestmark = SDK_NOTICE


async def test_a_finished_id_is_started_again_by_default(hub: Backend) -> None:
    """The host's NonRunningStates; the in-memory backend refuses."""
    await hub.run("no_steps", input=1, instance_id="again")
    assert (await hub.run("no_steps", input=2, instance_id="again")).get_output() == 2


async def test_an_empty_reuse_policy_means_that_the_id_must_be_free(hub: Backend) -> None:
    """The in-memory backend cannot tell an empty policy from none."""
    policy = pb.OrchestrationIdReusePolicy()
    await hub.run("no_steps", input=1, instance_id="once", reuse_id_policy=policy)
    with pytest.raises(grpc.RpcError) as refused:
        await hub.client.schedule_new_orchestration("no_steps", instance_id="once", reuse_id_policy=policy)
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS


async def test_a_policy_may_replace_a_running_instance(hub: Backend) -> None:
    policy = pb.OrchestrationIdReusePolicy(replaceableStatus=[pb.ORCHESTRATION_STATUS_RUNNING])
    await hub.client.schedule_new_orchestration("wait_for_go", instance_id="replaced")
    await hub.client.wait_for_orchestration_start("replaced", timeout=10)
    state = await hub.run("no_steps", input=2, instance_id="replaced", reuse_id_policy=policy)
    assert (state.name, state.get_output()) == ("no_steps", 2)


async def test_an_entity_id_is_no_instance_id(hub: Backend) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        await hub.client.schedule_new_orchestration("no_steps", instance_id="@counter@x")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_starts_no_earlier_than_asked(hub: Backend) -> None:
    start_at = datetime.now(UTC) + timedelta(seconds=0.3)
    instance_id = await hub.client.schedule_new_orchestration("two_events", start_at=start_at)
    await hub.client.raise_orchestration_event(instance_id, "second", data=2)
    await hub.client.raise_orchestration_event(instance_id, "first", data=1)
    waiting = await hub.client.get_orchestration_state(instance_id)
    assert waiting is not None
    assert waiting.runtime_status is OrchestrationStatus.PENDING
    state = await hub.finished(instance_id)
    assert state.last_updated_at.replace(tzinfo=UTC) >= start_at
    assert state.get_output() == [1, 2]


async def test_what_is_scheduled_for_later_can_be_terminated_now(hub: Backend) -> None:
    start_at = datetime.now(UTC) + timedelta(hours=1)
    instance_id = await hub.client.schedule_new_orchestration("no_steps", start_at=start_at)
    await hub.client.terminate_orchestration(instance_id, output="never")
    state = await hub.finished(instance_id)
    assert state.runtime_status is OrchestrationStatus.TERMINATED
    assert state.get_output() == "never"


async def test_terminates_all_that_an_instance_has_started(hub: Backend) -> None:
    child = {"name": "wait_for_go", "id": "grandchild"}
    parent = {"name": "parent", "input": child, "id": "child"}
    instance_id = await hub.client.schedule_new_orchestration("parent", input=parent)
    await hub.client.wait_for_orchestration_start("grandchild", timeout=10)
    await hub.client.terminate_orchestration(instance_id, recursive=True)
    for each in (instance_id, "child", "grandchild"):
        assert (await hub.finished(each)).runtime_status is OrchestrationStatus.TERMINATED


async def test_purges_all_that_an_instance_has_started(hub: Backend) -> None:
    await hub.run("parent", input={"name": "no_steps", "id": "below"}, instance_id="above")
    assert (await hub.client.purge_orchestration("above", recursive=True)).deleted_instance_count == 2
    assert await hub.client.get_orchestration_state("below") is None


async def test_a_child_knows_its_parent(hub: Backend) -> None:
    state = await hub.run("parent", input={"name": "who_is_my_parent"}, instance_id="the-parent")
    assert state.get_output() == "the-parent"


async def test_a_child_under_a_running_id_fails_in_its_parent(hub: Backend) -> None:
    await hub.client.schedule_new_orchestration("wait_for_go", instance_id="taken")
    state = await hub.run("parent", input={"name": "no_steps", "id": "taken"})
    assert state.runtime_status is OrchestrationStatus.FAILED


async def test_an_event_for_a_failed_instance_does_not_disturb_its_rewind(hub: Backend) -> None:
    """The in-memory backend hands it over beside the rewind, which the SDK refuses."""
    state = await hub.run("flaky", input="evented")
    await hub.client.raise_orchestration_event(state.instance_id, "whatever", data=1)
    await hub.client.rewind_orchestration(state.instance_id)
    assert (await hub.finished(state.instance_id)).get_output() == [2, "evented"]


async def test_others_wait_while_an_entity_is_locked(hub: Backend) -> None:
    """The in-memory backend runs their operations all the same."""
    held = EntityInstanceId("counter", "held")
    instance_id = await hub.client.schedule_new_orchestration("lock_and_wait")

    async def is_locked() -> bool:
        state = await hub.client.get_orchestration_state(instance_id)
        return state is not None and state.get_custom_status() == "locked"

    await eventually(is_locked)
    await hub.client.signal_entity(held, "add", input=1)
    await hub.run("call_counter", input=1)  # another entity goes on meanwhile
    entity = await hub.client.get_entity(held)
    assert entity is not None
    assert (entity._locked_by, entity.backlog_queue_size) == (instance_id, 1)
    await hub.client.raise_orchestration_event(instance_id, "go")
    await hub.finished(instance_id)

    async def is_one() -> bool:
        entity = await hub.client.get_entity(held)
        return entity is not None and entity.get_state() == "1"

    await eventually(is_one)


async def test_an_entity_without_state_is_not_there_and_can_be_cleaned(hub: Backend) -> None:
    entity_id = EntityInstanceId("counter", "gone")
    await hub.client.signal_entity(entity_id, "add", input=1)
    await hub.client.signal_entity(entity_id, "remove")

    async def is_clean() -> bool:
        return (await hub.client.clean_entity_storage()).empty_entities_removed == 1

    await eventually(is_clean)
    assert await hub.client.get_entity(entity_id) is None


async def test_releases_the_locks_of_those_who_are_gone(hub: Backend) -> None:
    policy = pb.OrchestrationIdReusePolicy(replaceableStatus=[pb.ORCHESTRATION_STATUS_RUNNING])
    await hub.client.schedule_new_orchestration("lock_and_wait", instance_id="owner")

    async def is_locked() -> bool:
        state = await hub.client.get_orchestration_state("owner")
        return state is not None and state.get_custom_status() == "locked"

    await eventually(is_locked)
    await hub.run("no_steps", instance_id="owner", reuse_id_policy=policy)
    assert (await hub.client.clean_entity_storage()).orphaned_locks_released == 1


async def test_queries_return_everything_however_much_there_is(hub: Backend) -> None:
    for number in range(5):
        await hub.run("no_steps", input="x" * 900_000, instance_id=f"large-{number}")
    states = await hub.client.get_all_orchestration_states(OrchestrationQuery(fetch_inputs_and_outputs=True))
    assert [len(state.get_output()) for state in states] == [900_000] * 5


async def test_the_sync_client_works_as_well(hub: Backend) -> None:
    def run() -> object:
        with TaskHubGrpcClient(host_address=hub.address) as client:
            instance_id = client.schedule_new_orchestration("one_activity", input=4)
            state = client.wait_for_orchestration_completion(instance_id, timeout=10)
            assert state is not None
            return state.get_output()

    assert await asyncio.to_thread(run) == 8


async def test_a_second_process_is_told_who_serves_the_store(tmp_path: Path) -> None:
    async with running_hub(tmp_path, make_app()):
        second = Hub(tmp_path / "hub.db", AppInvoker(make_app()), SystemClock())
        with pytest.raises(HubInUse, match=r"served by another process \(pid \d+\)"):
            await second.start()


async def test_what_waits_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with running_hub(tmp_path, make_app()) as hub:
        await hub.tasks.start(start("wait_for_go", "waiting"))
        await hub.tasks.start(start("sleeper", "sleeping", "0.3"))
        await hub.tasks.wait_started("waiting")
        await hub.tasks.wait_started("sleeping")
    async with running_hub(tmp_path, make_app()) as hub:
        await hub.tasks.raise_event("waiting", "go", '"hello"')
        assert (await hub.tasks.wait_finished("waiting")).output == '"hello"'
        assert (await hub.tasks.wait_finished("sleeping")).output == '"rested"'


def start(name: str, instance_id: str, input_: str | None = None) -> Start:
    return Start(instance_id, name, input=input_)


async def test_a_result_that_comes_after_the_failure_is_there_after_the_rewind(tmp_path: Path) -> None:
    """The in-memory backend drops it, and the rewound orchestration waits for ever."""
    app = make_app()
    late = asyncio.Event()

    @app.activity
    async def slow(_: object) -> str:
        await late.wait()
        return "late"

    @app.orchestrator
    def overtaken(ctx: task.OrchestrationContext, value: object) -> Generator[task.Task[Any], Any, Any]:
        pending: task.Task[Any] = ctx.call_activity("slow")
        yield ctx.call_activity("fail_once", input=value)
        return (yield pending)

    async with running_hub(tmp_path, app) as hub:
        await hub.tasks.start(start("overtaken", "overtaken", '"x"'))
        assert (await hub.tasks.wait_finished("overtaken")).status is Status.FAILED
        late.set()
        await hub.settled()
        await hub.tasks.rewind("overtaken", None)
        assert (await hub.tasks.wait_finished("overtaken")).output == '"late"'


async def test_a_store_of_a_later_form_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "hub.db")) as db:
        db.execute("PRAGMA user_version = 999")
    with pytest.raises(StoreTooNew, match="later version"):
        await Hub(tmp_path / "hub.db", AppInvoker(make_app()), SystemClock()).start()


async def test_an_activity_that_outlives_the_stop_runs_again_after_the_start(tmp_path: Path) -> None:
    app = make_app()
    runs: list[str] = []

    @app.activity
    async def stuck_once(_: object) -> str:
        runs.append("run")
        if len(runs) == 1:
            await asyncio.Event().wait()
        return "done"

    @app.orchestrator
    def wait_for_stuck(ctx: task.OrchestrationContext, _: object) -> Generator[task.Task[Any], Any, Any]:
        return (yield ctx.call_activity("stuck_once"))

    async with running_hub(tmp_path, app, settings=HubSettings(stop_seconds=0.05)) as hub:
        await hub.tasks.start(start("wait_for_stuck", "stuck"))
        await eventually(lambda: _is(runs == ["run"]))
    async with running_hub(tmp_path, app) as hub:
        assert (await hub.tasks.wait_finished("stuck")).output == '"done"'
    assert runs == ["run", "run"]


async def _is(answer: bool) -> bool:  # noqa: FBT001 - it is what is looked at
    return answer


async def test_a_child_that_is_started_while_its_parent_is_being_terminated_ends_too(tmp_path: Path) -> None:
    app = make_app()

    @app.orchestrator
    def late_parent(ctx: task.OrchestrationContext, _: object) -> Generator[task.Task[Any], Any, Any]:
        yield ctx.wait_for_external_event("go")
        yield ctx.call_sub_orchestrator("wait_for_go", instance_id="late-child")

    async with running_hub(tmp_path, app) as hub:
        await hub.tasks.start(start("late_parent", "late-parent"))
        await hub.settled()
        await asyncio.gather(  # one group, one turn: the event starts the child, the termination ends both
            hub.tasks.raise_event("late-parent", "go", None),
            hub.tasks.terminate("late-parent", None, recursive=True),
        )
        assert (await hub.tasks.wait_finished("late-child")).status is Status.TERMINATED


async def test_purging_within_a_time_says_that_it_is_complete(hub: Backend) -> None:
    for number in range(3):
        await hub.run("no_steps", instance_id=f"old-{number}")
    result = await hub.client.purge_orchestrations_by(timeout=timedelta(seconds=30))
    assert (result.deleted_instance_count, result.is_complete) == (3, True)


async def test_tags_travel_with_an_instance(hub: Backend) -> None:
    instance_id = await hub.client.schedule_new_orchestration("no_steps", tags={"team": "blue"})
    await hub.finished(instance_id)
    history = await hub.client.get_orchestration_history(instance_id)
    started = next(event for event in history if type(event).__name__ == "ExecutionStartedEvent")
    assert started.tags == {"team": "blue"}  # type: ignore[attr-defined] # it is the started event
