"""The same cases against the hub and against Microsoft's in-memory backend, through the SDK's own client."""

import durabletask.internal.orchestrator_service_pb2 as pb
import grpc
import pytest
from durabletask.client import EntityQuery, OrchestrationQuery, OrchestrationStatus
from durabletask.entities import EntityInstanceId

from tests.support.onebox.backends import SDK_NOTICE, Backend

pytestmark = SDK_NOTICE


async def test_returns_what_the_activity_returned(backend: Backend) -> None:
    state = await backend.run("one_activity", input=21)
    assert state.runtime_status is OrchestrationStatus.COMPLETED
    assert state.get_output() == 42
    assert state.get_input() == 21


async def test_an_orchestrator_without_steps_completes(backend: Backend) -> None:
    assert (await backend.run("no_steps", input="as is")).get_output() == "as is"


async def test_a_failed_activity_fails_the_orchestration(backend: Backend) -> None:
    state = await backend.run("failing", input="broken")
    assert state.runtime_status is OrchestrationStatus.FAILED
    assert state.failure_details is not None
    assert "broken" in state.failure_details.message


async def test_an_unknown_orchestrator_fails_at_once(backend: Backend) -> None:
    state = await backend.run("nobody")
    assert state.runtime_status is OrchestrationStatus.FAILED
    assert state.failure_details is not None
    assert state.failure_details.message == "A 'nobody' orchestrator was not registered."


async def test_retries_an_activity_by_policy(backend: Backend) -> None:
    assert (await backend.run("retried", input="x")).get_output() == "x"


async def test_fans_out_and_in(backend: Backend) -> None:
    assert (await backend.run("fan_out", input=40)).get_output() == sum(range(40)) * 2


async def test_waits_for_a_timer(backend: Backend) -> None:
    state = await backend.run("sleeper", input=0.2)
    assert (state.last_updated_at - state.created_at).total_seconds() >= 0.2


async def test_an_event_beats_a_timer(backend: Backend) -> None:
    instance_id = await backend.client.schedule_new_orchestration("event_or_timer", input=30)
    await backend.client.raise_orchestration_event(instance_id, "go")
    assert (await backend.finished(instance_id)).get_output() == "event"


async def test_a_timer_beats_no_event(backend: Backend) -> None:
    assert (await backend.run("event_or_timer", input=0.1)).get_output() == "timer"


async def test_an_event_may_come_before_it_is_waited_for(backend: Backend) -> None:
    instance_id = await backend.client.schedule_new_orchestration("two_events")
    await backend.client.raise_orchestration_event(instance_id, "second", data=2)
    await backend.client.raise_orchestration_event(instance_id, "FIRST", data=1)
    assert (await backend.finished(instance_id)).get_output() == [1, 2]


async def test_an_event_for_nobody_is_not_found(backend: Backend) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        await backend.client.raise_orchestration_event("nobody", "go")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_one_orchestration_sends_another_an_event(backend: Backend) -> None:
    instance_id = await backend.client.schedule_new_orchestration("wait_for_go")
    await backend.run("sender", input=instance_id)
    assert (await backend.finished(instance_id)).get_output() == "from afar"


async def test_a_sub_orchestration_returns_to_its_parent(backend: Backend) -> None:
    state = await backend.run("parent", input={"name": "chain", "input": 1, "id": "a-child"})
    assert state.get_output() == 8
    child = await backend.client.get_orchestration_state("a-child")
    assert child is not None
    assert child.get_output() == 8


async def test_a_failed_sub_orchestration_raises_in_its_parent(backend: Backend) -> None:
    state = await backend.run("catching_parent", input={"name": "failing", "input": "x"})
    assert state.get_output().startswith("caught ")


async def test_continues_as_new(backend: Backend) -> None:
    state = await backend.run("count_down", input=5)
    assert state.get_output() == "landed"
    assert state.get_input() == 0


async def test_carries_events_over_to_the_next_generation(backend: Backend) -> None:
    instance_id = await backend.client.schedule_new_orchestration("collect")
    for item in range(3):
        await backend.client.raise_orchestration_event(instance_id, "item", data=item)
    assert (await backend.finished(instance_id)).get_output() == [0, 1, 2]


async def test_shows_the_custom_status(backend: Backend) -> None:
    instance_id = await backend.client.schedule_new_orchestration("status_setter", input=7)
    await backend.until_shown(instance_id, {"at": 7})
    await backend.client.raise_orchestration_event(instance_id, "go", data="x")
    assert (await backend.finished(instance_id)).get_custom_status() == {"at": 7}


async def test_a_suspended_instance_sees_events_once_it_is_resumed(backend: Backend) -> None:
    instance_id = await backend.client.schedule_new_orchestration("wait_for_go")
    await backend.client.wait_for_orchestration_start(instance_id, timeout=60)
    await backend.client.suspend_orchestration(instance_id)
    await backend.until_suspended(instance_id)
    await backend.client.raise_orchestration_event(instance_id, "go", data="late")
    with pytest.raises(TimeoutError):
        await backend.client.wait_for_orchestration_completion(instance_id, timeout=0.2)
    await backend.client.resume_orchestration(instance_id)
    assert (await backend.finished(instance_id)).get_output() == "late"


async def test_terminates_with_an_output(backend: Backend) -> None:
    instance_id = await backend.client.schedule_new_orchestration("wait_for_go")
    await backend.client.wait_for_orchestration_start(instance_id, timeout=60)
    await backend.client.terminate_orchestration(instance_id, output="enough")
    state = await backend.finished(instance_id)
    assert state.runtime_status is OrchestrationStatus.TERMINATED
    assert state.get_output() == "enough"


async def test_purges_by_id_what_is_finished(backend: Backend) -> None:
    finished = (await backend.run("no_steps", input=1)).instance_id
    assert (await backend.client.purge_orchestration(finished)).deleted_instance_count == 1
    assert await backend.client.get_orchestration_state(finished) is None


async def test_purges_by_status_what_is_finished_only(backend: Backend) -> None:
    await backend.run("no_steps", input=1)
    failed = await backend.run("failing", input="x")
    running = await backend.client.schedule_new_orchestration("wait_for_go")
    await backend.client.wait_for_orchestration_start(running, timeout=60)
    result = await backend.client.purge_orchestrations_by(
        runtime_status=[OrchestrationStatus.FAILED, OrchestrationStatus.RUNNING]
    )
    assert result.deleted_instance_count == 1
    assert await backend.client.get_orchestration_state(failed.instance_id) is None
    assert await backend.client.get_orchestration_state(running) is not None


async def test_queries_by_status_prefix_and_page(backend: Backend) -> None:
    for number in range(5):
        await backend.run("no_steps", input=number, instance_id=f"wanted-{number}")
    await backend.run("no_steps", instance_id="other")
    states = await backend.client.get_all_orchestration_states(
        OrchestrationQuery(
            runtime_status=[OrchestrationStatus.COMPLETED],
            instance_id_prefix="wanted-",
            max_instance_count=2,
            fetch_inputs_and_outputs=True,
        )
    )
    assert [state.instance_id for state in states] == [f"wanted-{number}" for number in range(5)]
    assert [state.get_output() for state in states] == list(range(5))


async def test_lists_ids_of_finished_instances_in_pages(backend: Backend) -> None:
    for number in range(3):
        await backend.run("no_steps", input=number, instance_id=f"done-{number}")
    first = await backend.client.list_instance_ids(page_size=2)
    assert first.items == ["done-0", "done-1"]
    second = await backend.client.list_instance_ids(page_size=2, continuation_token=first.continuation_token)
    assert second.items == ["done-2"]
    assert second.continuation_token is None


async def test_the_history_has_the_same_events(backend: Backend) -> None:
    state = await backend.run("chain", input=1)
    history = await backend.client.get_orchestration_history(state.instance_id)
    turn = [
        "OrchestratorStartedEvent",
        "TaskCompletedEvent",
        "TaskScheduledEvent",
        "OrchestratorCompletedEvent",
    ]
    assert [type(event).__name__ for event in history] == [
        "OrchestratorStartedEvent",
        "ExecutionStartedEvent",
        "TaskScheduledEvent",
        "OrchestratorCompletedEvent",
        *turn,
        *turn,
        *[name for name in turn if name != "TaskScheduledEvent"],
        "ExecutionCompletedEvent",
    ]


async def test_restarts_under_the_same_id(backend: Backend) -> None:
    state = await backend.run("one_activity", input=4)
    restarted = await backend.client.restart_orchestration(state.instance_id)
    assert restarted == state.instance_id
    assert (await backend.finished(restarted)).get_output() == 8


async def test_restarts_under_a_new_id(backend: Backend) -> None:
    state = await backend.run("one_activity", input=4)
    restarted = await backend.client.restart_orchestration(
        state.instance_id, restart_with_new_instance_id=True
    )
    assert restarted != state.instance_id
    assert (await backend.finished(restarted)).get_output() == 8


async def test_does_not_restart_what_runs(backend: Backend) -> None:
    instance_id = await backend.client.schedule_new_orchestration("wait_for_go")
    with pytest.raises(grpc.RpcError) as refused:
        await backend.client.restart_orchestration(instance_id)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_rewinds_to_before_the_failure(backend: Backend) -> None:
    state = await backend.run("flaky", input="once")
    assert state.runtime_status is OrchestrationStatus.FAILED
    await backend.client.rewind_orchestration(state.instance_id, reason="fixed")
    assert (await backend.finished(state.instance_id)).get_output() == [2, "once"]


async def test_rewinds_a_failed_child_with_its_parent(backend: Backend) -> None:
    state = await backend.run("parent", input={"name": "flaky", "input": "child", "id": "rewound-child"})
    assert state.runtime_status is OrchestrationStatus.FAILED
    await backend.client.rewind_orchestration(state.instance_id)
    assert (await backend.finished(state.instance_id)).get_output() == [2, "child"]


async def test_a_running_id_is_taken(backend: Backend) -> None:
    instance_id = await backend.client.schedule_new_orchestration("wait_for_go")
    with pytest.raises(grpc.RpcError) as refused:
        await backend.client.schedule_new_orchestration("wait_for_go", instance_id=instance_id)
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS


async def test_a_reuse_policy_names_what_may_be_replaced(backend: Backend) -> None:
    policy = pb.OrchestrationIdReusePolicy(replaceableStatus=[pb.ORCHESTRATION_STATUS_FAILED])
    await backend.run("no_steps", input=1, instance_id="completed")
    with pytest.raises(grpc.RpcError) as refused:
        await backend.client.schedule_new_orchestration(
            "no_steps", instance_id="completed", reuse_id_policy=policy
        )
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    await backend.run("failing", input="x", instance_id="failed")
    assert (
        await backend.run("no_steps", input=2, instance_id="failed", reuse_id_policy=policy)
    ).get_output() == 2


async def test_the_version_reaches_the_orchestrator(backend: Backend) -> None:
    assert (await backend.run("version_of", version="1.2")).get_output() == "1.2"


async def test_signals_and_reads_an_entity(backend: Backend) -> None:
    entity_id = EntityInstanceId("counter", "signalled")
    for _ in range(3):
        await backend.client.signal_entity(entity_id, "add", input=2)
    await backend.until_entity(entity_id, "6")


async def test_calls_an_entity(backend: Backend) -> None:
    assert (await backend.run("call_counter", input=3)).get_output() == [3, 6]


async def test_a_failed_operation_changes_nothing(backend: Backend) -> None:
    state = await backend.run("call_exploding")
    assert state.get_output() == ["TaskFailedError", 5] or state.get_output()[1] == 5


async def test_locks_keep_transfers_apart(backend: Backend) -> None:
    ids = [await backend.client.schedule_new_orchestration("transfer", input=1) for _ in range(5)]
    balances = [(await backend.finished(instance_id)).get_output() for instance_id in ids]
    assert sorted(balances) == [-4, -3, -2, -1, 0]


async def test_queries_entities_by_prefix(backend: Backend) -> None:
    await backend.run("call_counter", input=1)
    found = await backend.client.get_all_entities(EntityQuery(instance_id_starts_with="@counter@"))
    assert [str(entity.id) for entity in found] == ["@counter@called"]
    assert found[0].get_state(int) == 2
