"""What the SDK builds on the protocol, on both backends: schedules, delayed signals, retries, export."""

from datetime import UTC, datetime, timedelta

from durabletask.client import OrchestrationQuery, OrchestrationStatus
from durabletask.entities import EntityInstanceId
from durabletask.scheduled import AsyncScheduledTaskClient, ScheduleCreationOptions

from tests.support.onebox.backends import SDK_NOTICE, Backend, eventually

pytestmark = SDK_NOTICE


async def test_a_schedule_starts_orchestrations_until_it_is_deleted(backend: Backend) -> None:
    schedules = AsyncScheduledTaskClient(backend.client)
    options = ScheduleCreationOptions("often", "no_steps", timedelta(seconds=1), orchestration_input=7)
    schedule = await schedules.create_schedule(options)

    async def ran_twice() -> bool:
        query = OrchestrationQuery(
            runtime_status=[OrchestrationStatus.COMPLETED], fetch_inputs_and_outputs=True
        )
        found = await backend.client.get_all_orchestration_states(query)
        return sum(state.name == "no_steps" for state in found) >= 2

    await eventually(ran_twice)
    await schedule.delete()
    assert await schedules.get_schedule("often") is None


async def test_an_entity_signals_itself_for_later(backend: Backend) -> None:
    entity_id = EntityInstanceId("counter", "later")
    await backend.client.signal_entity(entity_id, "add_later", input=0.2)
    await backend.until_entity(entity_id, "1")


async def test_a_client_signals_for_later(backend: Backend) -> None:
    entity_id = EntityInstanceId("counter", "scheduled")
    due = datetime.now(UTC) + timedelta(seconds=0.3)
    await backend.client.signal_entity(entity_id, "add", input=1, signal_time=due)
    await backend.until_entity(entity_id, "1")
    assert datetime.now(UTC) >= due


async def test_a_failed_child_is_retried_under_its_own_id(backend: Backend) -> None:
    assert (await backend.run("retrying_parent", input="again")).get_output() == [2, "again"]


async def test_what_history_export_reads_is_there(backend: Backend) -> None:
    before = datetime.now(UTC)
    state = await backend.run("chain", input=1)
    page = await backend.client.list_instance_ids(
        runtime_status=[OrchestrationStatus.COMPLETED],
        completed_time_from=before,
        completed_time_to=datetime.now(UTC) + timedelta(seconds=1),
    )
    assert page.items == [state.instance_id]
    history = await backend.client.get_orchestration_history(state.instance_id)
    assert type(history[-1]).__name__ == "ExecutionCompletedEvent"
