"""Records of keys whose completion was lost with an entity batch, on a task hub and real storage."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable_retry import clock
from durable_retry.engine.base.names import CANCEL_EVENT
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.operations.idempotency import KeyRecord
from durable_retry.services.operations.submit import Replayed, submit
from durable_retry.services.upkeep import lost_ends
from durable_retry.services.upkeep.histories import purge_others
from durable_retry.services.upkeep.lost_ends import SETTLED_AFTER, WINDOW, complete_lost, complete_lost_end
from durable_retry.stores.dead_letters.list import list_dead_letters
from durable_retry.stores.operations import notes
from durable_retry.stores.operations.index import OperationList, buckets
from durable_retry.stores.operations.key_record import read_record
from durable_retry.stores.operations.notes import write_noted
from durable_retry.stores.operations.status import GONE, find_status
from durable_retry.stores.storage.rounds import FIRST
from durable_retry.stores.task_hub import TaskHub, close_clients
from entities.idempotency_record import IdempotencyRecord
from tests.support.builders import an_operation, failing
from tests.support.hub import TaskHubStage, task_hub_stage

pytestmark = pytest.mark.usefixtures("own_tables")

NOW = datetime.now(UTC)


@pytest.fixture
async def hub() -> AsyncIterator[TaskHubStage]:
    with task_hub_stage() as stage:
        stage.answer = failing(0)
        yield stage
        await close_clients()


@pytest.fixture(autouse=True)
def at_noon() -> Iterator[None]:
    with clock.reading(lambda: NOW):
        yield


async def end(hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch) -> KeyRecord:
    """Run an operation to its end, whose completion is lost; return the record of its key."""
    lost: list[Any] = []
    with monkeypatch.context() as dead:
        dead.setattr(IdempotencyRecord, "complete", lambda _self, request: lost.append(request))
        await submit(hub.binding, an_operation(created_at=NOW, deadline_at=None))
        await hub.binding.wait_for_end("op-test", 20)
        async with asyncio.timeout(20):
            while not lost:  # noqa: ASYNC110 # the entity runs in a thread
                await asyncio.sleep(0.02)
    await write_noted()
    record = await read_record(hub.binding, "op-test")
    assert record is not None
    assert record.document is None
    return record


async def completed(hub: TaskHubStage) -> KeyRecord:
    async with asyncio.timeout(20):
        while True:
            record = await read_record(hub.binding, "op-test")
            if record is not None and record.document is not None:
                return record
            await asyncio.sleep(0.02)


async def test_a_completion_that_was_lost_is_made_up_for_within_a_quarter_of_an_hour(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = await end(hub, monkeypatch)
    early = NOW + SETTLED_AFTER - timedelta(seconds=1)
    assert await complete_lost(hub.binding, early, 20) == 0
    assert await complete_lost(hub.binding, NOW + SETTLED_AFTER + WINDOW, 20) == 1
    record = await completed(hub)
    instance = await hub.binding.read_instance("op-test")
    assert instance is not None
    assert (record.document, record.run) == (instance.output, claimed.run)
    assert record.expires_at == instance.updated_at + timedelta(days=1)


async def test_an_end_is_made_up_for_whose_claim_was_lost_too(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await end(hub, monkeypatch)
    await replay_unrecorded(hub, monkeypatch)
    assert await read_record(hub.binding, "op-test") == before
    assert await complete_lost_end(hub.binding, "op-test")
    record = await completed(hub)
    instance = await hub.binding.read_instance("op-test")
    assert instance is not None
    assert (record.owner, record.document) == ("op-test.dl-1", instance.output)


async def test_an_end_without_any_record_is_made_up_for_as_long_as_it_is_kept(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replay_unrecorded(hub, monkeypatch)
    assert await read_record(hub.binding, "op-test") is None
    with clock.reading(lambda: NOW + timedelta(days=2)):
        assert not await complete_lost_end(hub.binding, "op-test")
    assert await complete_lost_end(hub.binding, "op-test")
    assert (await completed(hub)).owner == "op-test.dl-1"


async def replay_unrecorded(hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a replay to its end; what the record of its key is after the claim and the end is lost."""
    done: list[Any] = []
    with monkeypatch.context() as dead:
        dead.setattr(IdempotencyRecord, "set_state", lambda _self, _state: None)
        dead.setattr(IdempotencyRecord, "complete", lambda _self, request: done.append(request))
        replay = an_operation(created_at=NOW, deadline_at=None, replay_of="dl-1")
        assert await hub.binding.start_operation(replay, "again", again=True)
        await hub.binding.wait_for_end("op-test", 20)
        async with asyncio.timeout(20):
            while not done:  # noqa: ASYNC110 # as above
                await asyncio.sleep(0.02)


async def test_an_operation_that_was_purged_while_it_ran_is_shown_and_becomes_a_dead_letter(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await end(hub, monkeypatch)
    await (await hub.binding.client()).purge_orchestration("op-test")
    shown = await find_status(hub.binding, "op-test")
    assert shown is not None
    assert (shown["status"], shown["unreadable"]) == ("dead_lettered", GONE)
    assert (shown["dead_letter"]["id"], shown["dead_letter"]["reason"]) == (None, "AmbiguousOutcome")
    assert await complete_lost(hub.binding, NOW + SETTLED_AFTER + WINDOW, 20) == 1
    document = (await completed(hub)).document
    assert document is not None
    (letter,) = (await list_dead_letters(DeadLetterFilter(), limit=10, cursor=None)).records
    assert (letter.id, letter.key) == (document["dead_letter"]["id"], "op-test")
    again = await submit(hub.binding, an_operation(created_at=NOW, deadline_at=None))
    assert isinstance(again, Replayed)


async def test_each_operation_is_looked_at_once(hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch) -> None:
    await end(hub, monkeypatch)
    looked_at: list[str] = []

    async def look(_hub: TaskHub, operation_id: str) -> None:
        looked_at.append(operation_id)

    monkeypatch.setattr(lost_ends, "read_record", look)
    for minutes in (5, 10, 15, 20, 600):
        await complete_lost(hub.binding, NOW + timedelta(minutes=minutes), 20)
    assert looked_at == ["op-test"]


async def test_an_end_whose_note_was_lost_without_a_gap_is_listed_within_a_quarter_of_an_hour(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was killed within 50 ms of an event of the platform's own."""
    hub.answer = failing(9)
    await submit(hub.binding, an_operation(created_at=NOW, deadline_at=None))
    async with asyncio.timeout(20):
        while await read_record(hub.binding, "op-test") is None:  # noqa: ASYNC110 # asks over gRPC
            await asyncio.sleep(0.02)
    await write_noted()
    with monkeypatch.context() as killed:
        killed.setattr(notes, "_note_entry", lambda _kind, _entry: None)
        await hub.binding.raise_event("op-test", CANCEL_EVENT, {})
        assert (await completed(hub)).document is not None
    assert await listed("cancelled") == []
    assert await complete_lost(hub.binding, NOW + SETTLED_AFTER + WINDOW, 20) == 0
    await write_noted()
    assert await listed("cancelled") == ["op-test"]
    await complete_lost(hub.binding, NOW + SETTLED_AFTER + 2 * WINDOW, 20)


async def listed(status: str) -> list[str]:
    entries = [each async for _, _, some in buckets(OperationList.FAILED, None) for each in some]
    return [each.operation_id for each in entries if each.status == status]


async def test_a_completion_that_was_lost_is_made_up_for_before_the_history_goes(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await end(hub, monkeypatch)
    soon_after = NOW + timedelta(hours=23)
    assert await purged(hub, soon_after) == 0
    assert (await completed(hub)).document is not None
    assert await purged(hub, soon_after) == 1
    assert await hub.binding.read_instance("op-test") is None


async def test_a_history_does_not_wait_for_its_record_for_ever(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await end(hub, monkeypatch)
    monkeypatch.setattr(IdempotencyRecord, "complete", lambda _self, _request: None)
    assert await purged(hub, NOW + timedelta(hours=23)) == 0
    assert await purged(hub, NOW + timedelta(hours=25)) == 1


async def purged(hub: TaskHubStage, started_before: datetime) -> int:
    """Purge what started before an instant, one round after a week; return how many histories went."""
    now = NOW + timedelta(days=8)
    number, after = await purge_others(hub.binding, started_before, now, FIRST)
    while after != FIRST:
        more, after = await purge_others(hub.binding, started_before, now, after)
        number += more
    return number


async def test_the_record_of_an_operation_that_has_not_ended_is_left(hub: TaskHubStage) -> None:
    hub.answer = failing(9)
    await submit(hub.binding, an_operation(created_at=NOW, deadline_at=None))
    async with asyncio.timeout(20):
        while await read_record(hub.binding, "op-test") is None:  # noqa: ASYNC110 # asks over gRPC
            await asyncio.sleep(0.02)
    assert not await complete_lost_end(hub.binding, "op-test")
