"""More cases for both backends, above all where the in-memory one does not do as the Functions host does."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
import grpc
import pytest
from durabletask.client import OrchestrationQuery, OrchestrationStatus, TaskHubGrpcClient
from durabletask.entities import EntityInstanceId

from tests.support.onebox.backends import SDK_NOTICE, Backend, eventually, in_memory_differs

pytestmark = SDK_NOTICE


@in_memory_differs("it refuses; the host has NonRunningStates")
async def test_a_finished_id_is_started_again_by_default(backend: Backend) -> None:
    await backend.run("no_steps", input=1, instance_id="again")
    assert (await backend.run("no_steps", input=2, instance_id="again")).get_output() == 2


@in_memory_differs("it takes any id")
async def test_an_entity_id_is_no_instance_id(backend: Backend) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        await backend.client.schedule_new_orchestration("no_steps", instance_id="@counter@x")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@in_memory_differs("an event starts an instance that waits for its time")
async def test_starts_no_earlier_than_asked(backend: Backend) -> None:
    start_at = datetime.now(UTC) + timedelta(seconds=1)
    instance_id = await backend.client.schedule_new_orchestration("two_events", start_at=start_at)
    await backend.client.raise_orchestration_event(instance_id, "second", data=2)
    await backend.client.raise_orchestration_event(instance_id, "first", data=1)
    waiting = await backend.client.get_orchestration_state(instance_id)
    assert waiting is not None
    if datetime.now(UTC) < start_at:  # a busy machine may have taken longer
        assert waiting.runtime_status is OrchestrationStatus.PENDING
    state = await backend.finished(instance_id)
    assert state.last_updated_at.replace(tzinfo=UTC) >= start_at
    assert state.get_output() == [1, 2]


@in_memory_differs("a termination starts an instance that waits for its time")
async def test_what_is_scheduled_for_later_can_be_terminated_now(backend: Backend) -> None:
    start_at = datetime.now(UTC) + timedelta(hours=1)
    instance_id = await backend.client.schedule_new_orchestration("no_steps", start_at=start_at)
    await backend.client.terminate_orchestration(instance_id, output="never")
    state = await backend.finished(instance_id)
    assert state.runtime_status is OrchestrationStatus.TERMINATED
    assert state.get_output() == "never"


@in_memory_differs("it ends the children, too")
@pytest.mark.shows("H17")
async def test_what_a_terminated_instance_has_started_goes_on(backend: Backend) -> None:
    child = {"name": "wait_for_go", "id": "child"}
    instance_id = await backend.client.schedule_new_orchestration("parent", input=child)
    await backend.client.wait_for_orchestration_start("child", timeout=60)
    await backend.client.terminate_orchestration(instance_id, recursive=True)
    assert (await backend.finished(instance_id)).runtime_status is OrchestrationStatus.TERMINATED
    await backend.client.raise_orchestration_event("child", "go", data="alone")
    assert (await backend.finished("child")).get_output() == "alone"


COMMANDS: list[tuple[str, list[Any]]] = [
    ("raise_orchestration_event", ["go"]),
    ("suspend_orchestration", []),
    ("resume_orchestration", []),
    ("terminate_orchestration", []),
]


@in_memory_differs("it accepts them, and they have no effect")
@pytest.mark.parametrize(("command", "arguments"), COMMANDS)
@pytest.mark.shows("H16")
async def test_an_event_and_a_command_for_one_that_has_ended_are_refused(
    command: str, arguments: list[Any], backend: Backend
) -> None:
    instance_id = (await backend.run("no_steps", input="done")).instance_id
    with pytest.raises(grpc.RpcError) as refused:
        await getattr(backend.client, command)(instance_id, *arguments)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


@in_memory_differs("it accepts it, and nothing happens")
@pytest.mark.shows("H16")
async def test_nobody_can_be_terminated(backend: Backend) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        await backend.client.terminate_orchestration("nobody")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


@in_memory_differs("it accepts both")
async def test_only_one_that_goes_on_is_suspended_and_only_a_suspended_one_resumed(backend: Backend) -> None:
    instance_id = await backend.client.schedule_new_orchestration("wait_for_go")
    await backend.client.wait_for_orchestration_start(instance_id, timeout=60)
    with pytest.raises(grpc.RpcError) as refused:
        await backend.client.resume_orchestration(instance_id)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    await backend.client.suspend_orchestration(instance_id)
    await backend.until_suspended(instance_id)
    with pytest.raises(grpc.RpcError) as refused:
        await backend.client.suspend_orchestration(instance_id)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


@in_memory_differs("it looks at the status, which Azure Storage does not")
@pytest.mark.shows("H18")
async def test_purges_by_id_what_runs_too(backend: Backend) -> None:
    running = await backend.client.schedule_new_orchestration("wait_for_go")
    await backend.client.wait_for_orchestration_start(running, timeout=60)
    assert (await backend.client.purge_orchestration(running)).deleted_instance_count == 1
    assert await backend.client.get_orchestration_state(running) is None


@pytest.mark.shows("H17")
async def test_what_a_purged_instance_has_started_stays(backend: Backend) -> None:
    await backend.run("parent", input={"name": "no_steps", "id": "below"}, instance_id="above")
    assert (await backend.client.purge_orchestration("above", recursive=True)).deleted_instance_count == 1
    assert await backend.client.get_orchestration_state("below") is not None


@in_memory_differs("it does not say which")
async def test_a_child_knows_its_parent(backend: Backend) -> None:
    state = await backend.run("parent", input={"name": "who_is_my_parent"}, instance_id="the-parent")
    assert state.get_output() == "the-parent"


@in_memory_differs("it runs the operations of others all the same")
async def test_others_wait_while_an_entity_is_locked(backend: Backend) -> None:
    held = EntityInstanceId("counter", "held")
    instance_id = await backend.client.schedule_new_orchestration("lock_and_wait")
    await backend.until_shown(instance_id, "locked")
    await backend.client.signal_entity(held, "add", input=1)
    await backend.run("call_counter", input=1)  # another entity goes on meanwhile
    entity = await backend.client.get_entity(held)
    assert entity is not None
    assert (entity._locked_by, entity.backlog_queue_size) == (instance_id, 1)
    await backend.client.raise_orchestration_event(instance_id, "go")
    await backend.finished(instance_id)
    await backend.until_entity(held, "1")


@in_memory_differs("it grants and keeps the lock")
async def test_a_lock_is_granted_to_nobody_who_has_ended(backend: Backend) -> None:
    for owner in ("first", "second", "third"):
        await ask_for_lock(backend, owner)
    await backend.client.terminate_orchestration("second")
    await backend.finished("second")
    await backend.client.raise_orchestration_event("first", "go")
    await backend.client.raise_orchestration_event("third", "go")
    assert (await backend.finished("third")).get_output() == "released"


@in_memory_differs("it keeps the lock")
async def test_a_lock_is_released_when_its_owner_ends(backend: Backend) -> None:
    for owner in ("first", "second"):
        await ask_for_lock(backend, owner)
    await backend.client.terminate_orchestration("first")
    await backend.client.raise_orchestration_event("second", "go")
    assert (await backend.finished("second")).get_output() == "released"


async def ask_for_lock(backend: Backend, owner: str) -> None:
    """Start an instance, and return once it has the lock or waits for it."""
    await backend.client.schedule_new_orchestration("lock_and_wait", instance_id=owner)

    async def has_asked() -> bool:
        state = await backend.client.get_orchestration_state(owner)
        entity = await backend.client.get_entity(EntityInstanceId("counter", "held"))
        is_locked = entity is not None and entity._locked_by is not None
        return is_locked and state is not None and state.runtime_status.name == "RUNNING"

    await eventually(has_asked)


@in_memory_differs("it releases none")
async def test_releases_the_locks_of_those_who_are_gone(backend: Backend) -> None:
    policy = pb.OrchestrationIdReusePolicy(replaceableStatus=[pb.ORCHESTRATION_STATUS_RUNNING])
    await backend.client.schedule_new_orchestration("lock_and_wait", instance_id="owner")
    await backend.until_shown("owner", "locked")
    await backend.run("no_steps", instance_id="owner", reuse_id_policy=policy)
    assert (await backend.client.clean_entity_storage()).orphaned_locks_released == 1


@pytest.mark.shows("H8")
async def test_a_page_larger_than_a_client_takes_is_refused_and_smaller_ones_are_not(
    backend: Backend,
) -> None:
    for number in range(5):
        await backend.run("no_steps", input="x" * 900_000, instance_id=f"large-{number}")
    with pytest.raises(grpc.RpcError) as refused:
        await backend.client.get_all_orchestration_states(OrchestrationQuery(fetch_inputs_and_outputs=True))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    pairs = OrchestrationQuery(fetch_inputs_and_outputs=True, max_instance_count=2)
    states = await backend.client.get_all_orchestration_states(pairs)
    assert [len(state.get_output()) for state in states] == [900_000] * 5


@in_memory_differs("it has the custom status in every answer")
async def test_one_instance_without_payloads_comes_without_its_custom_status(backend: Backend) -> None:
    instance_id = await backend.client.schedule_new_orchestration("status_setter", input=7)
    await backend.client.raise_orchestration_event(instance_id, "go", data="x")
    assert (await backend.finished(instance_id)).get_custom_status() == {"at": 7}
    light = await backend.client.get_orchestration_state(instance_id, fetch_payloads=False)
    assert light is not None
    assert (light.serialized_custom_status, light.serialized_output) == (None, None)
    (listed,) = await backend.client.get_all_orchestration_states(OrchestrationQuery())
    assert listed.get_custom_status() == {"at": 7}


async def test_an_empty_reuse_policy_means_that_the_id_must_be_free(backend: Backend) -> None:
    policy = pb.OrchestrationIdReusePolicy()
    await backend.run("no_steps", input=1, instance_id="once", reuse_id_policy=policy)
    with pytest.raises(grpc.RpcError) as refused:
        await backend.client.schedule_new_orchestration(
            "no_steps", instance_id="once", reuse_id_policy=policy
        )
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS


async def test_a_policy_may_replace_a_running_instance(backend: Backend) -> None:
    policy = pb.OrchestrationIdReusePolicy(replaceableStatus=[pb.ORCHESTRATION_STATUS_RUNNING])
    await backend.client.schedule_new_orchestration("wait_for_go", instance_id="replaced")
    await backend.client.wait_for_orchestration_start("replaced", timeout=60)
    state = await backend.run("no_steps", input=2, instance_id="replaced", reuse_id_policy=policy)
    assert (state.name, state.get_output()) == ("no_steps", 2)


async def test_a_child_under_a_running_id_fails_in_its_parent(backend: Backend) -> None:
    await backend.client.schedule_new_orchestration("wait_for_go", instance_id="taken")
    state = await backend.run("parent", input={"name": "no_steps", "id": "taken"})
    assert state.runtime_status is OrchestrationStatus.FAILED


async def test_an_entity_without_state_is_not_there_and_can_be_cleaned(backend: Backend) -> None:
    entity_id = EntityInstanceId("counter", "gone")
    await backend.client.signal_entity(entity_id, "add", input=1)
    await backend.client.signal_entity(entity_id, "remove")

    async def is_clean() -> bool:
        return (await backend.client.clean_entity_storage()).empty_entities_removed == 1

    await eventually(is_clean)
    assert await backend.client.get_entity(entity_id) is None


async def test_the_sync_client_works_as_well(backend: Backend) -> None:
    def run() -> object:
        with TaskHubGrpcClient(host_address=backend.address) as client:
            instance_id = client.schedule_new_orchestration("one_activity", input=4)
            state = client.wait_for_orchestration_completion(instance_id, timeout=60)
            assert state is not None
            return state.get_output()

    assert await asyncio.to_thread(run) == 8


async def test_purging_within_a_time_says_that_it_is_complete(backend: Backend) -> None:
    for number in range(3):
        await backend.run("no_steps", instance_id=f"old-{number}")
    result = await backend.client.purge_orchestrations_by(timeout=timedelta(seconds=30))
    assert (result.deleted_instance_count, result.is_complete) == (3, True)


async def test_tags_travel_with_an_instance(backend: Backend) -> None:
    instance_id = await backend.client.schedule_new_orchestration("no_steps", tags={"team": "blue"})
    await backend.finished(instance_id)
    history = await backend.client.get_orchestration_history(instance_id)
    started = next(event for event in history if type(event).__name__ == "ExecutionStartedEvent")
    assert started.tags == {"team": "blue"}  # type: ignore[attr-defined] # it is the started event
