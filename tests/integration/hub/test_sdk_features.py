"""What the SDK builds on the protocol, on both backends: schedules, delayed signals, retries, export."""

from collections.abc import AsyncIterator, Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from durabletask import task
from durabletask.client import OrchestrationQuery, OrchestrationStatus
from durabletask.entities import EntityInstanceId
from durabletask.scheduled import AsyncScheduledTaskClient, ScheduleCreationOptions
from durabletask.scheduled.orchestrator import execute_schedule_operation_orchestrator
from durabletask.scheduled.schedule_entity import ENTITY_NAME, Schedule

from tests.integration.hub.backends import BACKENDS, SDK_NOTICE, Backend, eventually
from tests.integration.hub.sample_app import make_app

pytestmark = SDK_NOTICE


@pytest.fixture(params=sorted(BACKENDS))
async def scheduling(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    app = make_app()
    app.orchestrator(execute_schedule_operation_orchestrator)
    app.entities_by_name[ENTITY_NAME] = Schedule
    async with BACKENDS[request.param](tmp_path, app) as made:
        yield made


async def test_a_schedule_starts_orchestrations_until_it_is_deleted(scheduling: Backend) -> None:
    schedules = AsyncScheduledTaskClient(scheduling.client)
    options = ScheduleCreationOptions("often", "no_steps", timedelta(seconds=1), orchestration_input=7)
    schedule = await schedules.create_schedule(options)

    async def ran_twice() -> bool:
        query = OrchestrationQuery(
            runtime_status=[OrchestrationStatus.COMPLETED], fetch_inputs_and_outputs=True
        )
        found = await scheduling.client.get_all_orchestration_states(query)
        return sum(state.name == "no_steps" for state in found) >= 2

    await eventually(ran_twice)
    await schedule.delete()
    assert await schedules.get_schedule("often") is None


async def test_an_entity_signals_itself_for_later(backend: Backend) -> None:
    entity_id = EntityInstanceId("counter", "later")
    await backend.client.signal_entity(entity_id, "add_later", input=0.2)

    async def is_one() -> bool:
        entity = await backend.client.get_entity(entity_id)
        return entity is not None and entity.get_state() == "1"

    await eventually(is_one)


async def test_a_client_signals_for_later(backend: Backend) -> None:
    entity_id = EntityInstanceId("counter", "scheduled")
    due = datetime.now(UTC) + timedelta(seconds=0.3)
    await backend.client.signal_entity(entity_id, "add", input=1, signal_time=due)

    async def is_one() -> bool:
        entity = await backend.client.get_entity(entity_id)
        return entity is not None and entity.get_state() == "1"

    await eventually(is_one)
    assert datetime.now(UTC) >= due


@pytest.fixture(params=sorted(BACKENDS))
async def retrying(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    app = make_app()

    @app.orchestrator
    def retrying_parent(ctx: task.OrchestrationContext, value: Any) -> Generator[task.Task[Any], Any, Any]:
        policy = task.RetryPolicy(first_retry_interval=timedelta(milliseconds=20), max_number_of_attempts=3)
        return (yield ctx.call_sub_orchestrator("flaky", input=value, retry_policy=policy))

    async with BACKENDS[request.param](tmp_path, app) as made:
        yield made


async def test_a_failed_child_is_retried_under_its_own_id(retrying: Backend) -> None:
    assert (await retrying.run("retrying_parent", input="again")).get_output() == [2, "again"]


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
