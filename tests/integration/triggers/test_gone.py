import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable_retry.base.names import OperationState
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.hub.task_hub import close_clients
from durable_retry.operations.actions import Replayed, submit
from durable_retry.operations.entities import read_record
from durable_retry.operations.status import find_status
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.facts import StartUnanswered
from durable_retry.rules.operations.status import OperationStatus
from durable_retry.rules.retry.history import History
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from durable_retry.telemetry.facts import report
from durable_retry_console.index.notes import note_document, unwritten, write_noted
from durable_retry_console.index.reconcile import GONE, SETTLED_AFTER, add_lost
from durable_retry_console.index.store import OperationList, buckets
from tests.support.builders import an_operation, failing
from tests.support.hub import TaskHubStage, task_hub_stage
from tests.support.narrowing import of_type

pytestmark = pytest.mark.usefixtures("own_tables")

NOW = datetime.now(UTC)
# The task hub has the real time, and this test may run many minutes after it was collected.
LATER = NOW + SETTLED_AFTER + timedelta(hours=1)


@pytest.fixture
async def hub() -> AsyncIterator[TaskHubStage]:
    configured = using(parse_config('[dependencies.payments]\nbase_url = "https://p.example.com"\n', {}))
    with configured, clock.reading(lambda: NOW), task_hub_stage() as stage:
        stage.answer = failing(99)
        yield stage
        await close_clients()


async def begin(hub: TaskHubStage, **changes: Any) -> None:
    await submit(hub.binding, an_operation(created_at=NOW, deadline_at=None, **changes))
    async with asyncio.timeout(20):
        while not await rests(hub):  # noqa: ASYNC110 # asks over gRPC
            await asyncio.sleep(0.02)
    await write_all()


async def write_all() -> None:
    """Write what was noted, also where storage answers too late at first, as it does beside load."""
    await write_noted()
    while unwritten() is not None:
        await write_noted()


async def rests(hub: TaskHubStage) -> bool:
    """Whether it has no turn any more until its retry is due."""
    instance = await hub.binding.read_instance("op-test")
    shown = None if instance is None else instance.custom_status
    return shown is not None and shown["status"] in {"waiting_retry", "succeeded"}


async def purge(hub: TaskHubStage) -> None:
    hub.backend._instances.pop("op-test")  # It refuses to purge what runs, where Azure Storage does not.
    assert await hub.binding.read_instance("op-test") is None


async def compare(hub: TaskHubStage, at: datetime) -> None:
    await add_lost(hub.binding, at, 20)
    await write_all()


async def letters(dependency: str | None = None) -> list[tuple[str, str, str | None]]:
    page = await list_dead_letters(DeadLetterFilter(dependency=dependency), limit=10, cursor=None)
    return [(each.key, each.reason, each.detail) for each in page.records]


async def failed() -> list[str | None]:
    entries = [each async for _, _, some in buckets([OperationList.FAILED], None) for each in some]
    return [each.status for each in entries]


@pytest.mark.parametrize("key_is_generated", [None, True])
@pytest.mark.shows("P17")
async def test_an_operation_that_was_purged_while_it_ran_becomes_a_dead_letter(
    hub: TaskHubStage,
    key_is_generated: bool | None,  # noqa: FBT001 - of the operation
) -> None:
    await begin(hub, key_is_generated=key_is_generated)
    await purge(hub)
    await compare(hub, LATER)
    assert await letters(dependency="payments") == [("op-test", "AmbiguousOutcome", GONE)]
    async with asyncio.timeout(20):
        while (shown := await find_status(hub.binding, "op-test")) is None:  # noqa: ASYNC110 # asks over gRPC
            await asyncio.sleep(0.02)
    assert (shown["status"], shown["key"], shown["unreadable"]) == ("dead_lettered", "key-1", GONE)
    again = of_type(Replayed, await submit(hub.binding, an_operation(created_at=NOW, deadline_at=None)))
    assert again.finished
    assert await failed() == ["dead_lettered"]
    await compare(hub, LATER + timedelta(hours=2))
    assert len(await letters()) == 1


async def test_one_that_failed_before_is_missed_however_long_ago_it_was_accepted(hub: TaskHubStage) -> None:
    await begin(hub)
    await compare(hub, LATER)
    await purge(hub)
    note_document(a_waiting_document(), "503", is_known=True)
    await compare(hub, LATER + timedelta(days=3))
    assert await letters() == [("op-test", "AmbiguousOutcome", GONE)]


def a_waiting_document() -> dict[str, Any]:
    operation = an_operation(created_at=NOW, deadline_at=None)
    status = OperationStatus(
        operation=operation, state=OperationState.WAITING_RETRY, history=History(), updated_at=NOW
    )
    return status.to_json()


async def test_one_with_a_record_that_was_purged_after_its_end_is_no_dead_letter(hub: TaskHubStage) -> None:
    hub.answer = failing(0)
    await begin(hub, keeps_record=True)
    await hub.binding.wait_for_end("op-test", 20)
    async with asyncio.timeout(20):
        while await read_record(hub.binding, "op-test") is None:  # noqa: ASYNC110 # asks over gRPC
            await asyncio.sleep(0.02)
    await purge(hub)
    await compare(hub, LATER)
    assert await letters() == []


async def test_one_whose_history_was_over_while_the_app_stood_still_is_no_dead_letter(
    hub: TaskHubStage,
) -> None:
    hub.answer = failing(0)
    await compare(hub, NOW - timedelta(hours=1))
    await begin(hub, key_is_generated=True)
    await hub.binding.wait_for_end("op-test", 20)
    await purge(hub)
    back = LATER + timedelta(days=8)
    with clock.reading(lambda: back):
        await compare(hub, back)
    assert await letters() == []


async def test_one_whose_start_was_not_answered_may_never_have_been_there(hub: TaskHubStage) -> None:
    report(StartUnanswered(an_operation(created_at=NOW)))
    await write_all()
    await compare(hub, LATER)
    assert await letters() == []


async def test_one_that_runs_is_left_alone(hub: TaskHubStage) -> None:
    await begin(hub)
    await compare(hub, LATER)
    assert await letters() == []
