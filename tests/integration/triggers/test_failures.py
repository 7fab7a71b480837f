"""Operations whose orchestration fails outright, on a task hub and real storage."""

import asyncio
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from durabletask import task
from durabletask.client import OrchestrationStatus

from durable_retry import clock
from durable_retry.engine.base.names import OPERATION
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.services.failures import TERMINATED_WITHIN, sweep_failed, sweep_terminated
from durable_retry.services.operation_index import purge_others
from durable_retry.services.submit import submit
from durable_retry.stores.dead_letters.list import list_dead_letters
from durable_retry.stores.operations import find_status
from durable_retry.stores.tables import FIRST
from durable_retry.stores.task_hub import (
    client_for,
    close_clients,
    purge_history,
    read_operation,
    read_record,
    start_instance,
    wait_for_operation,
)
from tests.support.builders import an_operation, failing
from tests.support.hub import TaskHubStage, task_hub_stage
from tests.support.tables import use_own_tables

pytestmark = pytest.mark.usefixtures("storage")

NOW = datetime.now(UTC)
"""The machine's clock, as the task hub's: it removes a record whose time is over."""


def failing_outright(ctx: task.OrchestrationContext, _input: Any) -> Generator[Any, Any]:
    """Fail as an orchestrator does whose history does not fit the code."""
    yield ctx.create_timer(timedelta(milliseconds=1))
    raise RuntimeError("the history does not fit")


@pytest.fixture(autouse=True)
def tables_of_its_own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    use_own_tables(request.node.name, monkeypatch)
    with clock.reading(lambda: NOW):
        yield


async def failed(hub: TaskHubStage, instance_id: str, given: dict[str, Any]) -> None:
    await start_instance(hub.binding, OPERATION, instance_id, given, again=False)
    instance = await wait_for_operation(hub.binding, instance_id, 20)
    assert instance is not None
    assert instance.runtime_status is OrchestrationStatus.FAILED


async def is_complete(hub: TaskHubStage, operation_id: str) -> bool:
    record = await read_record(hub.binding, operation_id)
    return record is not None and record.document is not None


async def purged(hub: TaskHubStage, started_before: datetime) -> int:
    """Go round all instances once; return how many were purged."""
    number, after = await purge_others(hub.binding, started_before, started_before, FIRST)
    while after != FIRST:
        more, after = await purge_others(hub.binding, started_before, started_before, after)
        number += more
    return number


async def swept(hub: TaskHubStage, instance_id: str) -> None:
    """Sweep until the record of the key is complete and the instance purged."""
    assert await sweep_failed(hub.binding, NOW) == 1
    async with asyncio.timeout(60):
        while not await is_complete(hub, instance_id):  # noqa: ASYNC110 # asks over gRPC
            await asyncio.sleep(0.05)
    assert await sweep_failed(hub.binding, NOW) == 0
    assert await read_operation(hub.binding, instance_id) is None


async def test_a_failed_orchestration_becomes_a_dead_letter_before_it_is_purged() -> None:
    with task_hub_stage(instead={OPERATION: failing_outright}) as hub:
        await failed(hub, "op-test", {"operation": an_operation().to_json()})
        assert await purged(hub, datetime.now(UTC) + timedelta(days=1)) == 0
        await swept(hub, "op-test")
        (letter,) = (await list_dead_letters(DeadLetterFilter(), limit=10, cursor=None)).records
        assert (letter.operation_id, letter.reason) == ("op-test", "AmbiguousOutcome")
        assert "the history does not fit" in letter.detail
        document = await find_status(hub.binding, "op-test")
        assert document is not None
        assert (document["status"], document["dead_letter"]["id"]) == ("dead_lettered", letter.id)
        await close_clients()


async def test_of_an_operation_that_cannot_be_read_the_dead_letter_has_the_input() -> None:
    given = {"operation": {"key": "k-1", "fingerprint": "f1"}}
    with task_hub_stage(instead={OPERATION: failing_outright}) as hub:
        await failed(hub, "op-odd", given)
        shown = await find_status(hub.binding, "op-odd")
        assert shown is not None
        assert shown["status"] == "dead_lettered"
        await swept(hub, "op-odd")
        (letter,) = (await list_dead_letters(DeadLetterFilter(), limit=10, cursor=None)).records
        assert (letter.key, letter.reason, letter.message) == (
            "op-odd",
            "ValidationFailed",
            '{"operation": {"key": "k-1", "fingerprint": "f1"}}',
        )
        await close_clients()


async def test_orchestrations_of_the_app_around_the_engine_are_left_to_it() -> None:
    with task_hub_stage(instead={"theirs": failing_outright}) as hub:
        client = await client_for(hub.binding)
        await client.schedule_new_orchestration("theirs", instance_id="outbox-1")
        assert await wait_for_operation(hub.binding, "outbox-1", 20) is not None
        assert await purged(hub, datetime.now(UTC) + timedelta(days=1)) == 0
        assert await read_operation(hub.binding, "outbox-1") is not None
        await close_clients()


async def test_other_failed_orchestrations_are_purged_when_they_are_old() -> None:
    with task_hub_stage(instead={OPERATION: failing_outright}) as hub:
        await failed(hub, "outbox-op-1", {})
        assert await purged(hub, datetime.now(UTC) - timedelta(days=1)) == 0
        assert await purged(hub, datetime.now(UTC) + timedelta(days=1)) == 1
        await close_clients()


async def test_an_operation_terminated_through_the_platform_is_cancelled_for_its_key_too() -> None:
    """Otherwise its record stays in progress for ever, and refuses the key to every other request."""
    with task_hub_stage() as hub:
        hub.answer = failing(3)
        operation = an_operation(created_at=datetime.now(UTC), deadline_at=None)
        await submit(hub.binding, operation)
        async with asyncio.timeout(60):
            while await read_record(hub.binding, "op-test") is None:  # noqa: ASYNC110 # asks over gRPC
                await asyncio.sleep(0.05)
        await (await client_for(hub.binding)).terminate_orchestration("op-test")
        await wait_for_operation(hub.binding, "op-test", 20)

        late = datetime.now(UTC) + TERMINATED_WITHIN + timedelta(minutes=1)
        assert await sweep_terminated(hub.binding, late) == 0
        assert await sweep_terminated(hub.binding, datetime.now(UTC)) == 1
        async with asyncio.timeout(60):
            while not await is_complete(hub, "op-test"):  # noqa: ASYNC110 # asks over gRPC
                await asyncio.sleep(0.05)
        assert await sweep_terminated(hub.binding, datetime.now(UTC)) == 0

        await purge_history(hub.binding, "op-test")
        document = await find_status(hub.binding, "op-test")
        record = await read_record(hub.binding, "op-test")
        assert document is not None
        assert record is not None
        assert (document["status"], document["dead_letter"]) == ("cancelled", None)
        assert record.expires_at is not None
        await close_clients()
