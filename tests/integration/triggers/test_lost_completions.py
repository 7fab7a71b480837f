from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable_retry.features.retention.histories import purge_others
from durable_retry.hub.task_hub import close_clients
from durable_retry.operations.actions import Replayed, Started, submit
from durable_retry.operations.entities import read_record
from durable_retry.operations.lone_records import KNOWN_TO_ALL_AFTER
from durable_retry.rules.operations.keys import KeyRecord
from durable_retry.runtime import clock
from durable_retry.upkeep.removal import Past
from entities.idempotency_record import IdempotencyRecord
from tests.support.builders import an_operation, failing
from tests.support.hub import TaskHubStage, task_hub_stage
from tests.support.narrowing import existing, of_type
from tests.support.polling import until

pytestmark = pytest.mark.usefixtures("own_tables")

NOW = datetime.now(UTC)
SOON_AFTER = NOW + timedelta(hours=23)


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


async def end(hub: TaskHubStage, **changes: Any) -> None:
    """Run an operation to its end, which completes no record."""
    await submit(hub.binding, an_operation(created_at=NOW, deadline_at=None, **changes))
    await hub.binding.wait_for_end("op-test", 20)


async def end_and_lose(hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an operation to its end whose completion is lost; its key answers for ten days."""
    lost: list[Any] = []
    with monkeypatch.context() as dead:
        dead.setattr(IdempotencyRecord, "complete", lambda _self, request: lost.append(request))
        await end(hub, ttl_seconds=10 * 86_400, keeps_record=True)
        await until(lambda: lost)
    assert await read_record(hub.binding, "op-test") is None


async def completed(hub: TaskHubStage) -> KeyRecord:
    return of_type(KeyRecord, await until(lambda: read_record(hub.binding, "op-test")))


@pytest.mark.shows("W4")
async def test_an_operation_whose_completion_was_lost_answers_for_its_key_all_the_same(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await end_and_lose(hub, monkeypatch)
    again = of_type(Replayed, await submit(hub.binding, an_operation(created_at=NOW + timedelta(days=5))))
    assert again.finished


@pytest.mark.shows("W4")
async def test_a_record_is_completed_before_a_history_goes_that_was_to_outlive_the_time_of_its_key(
    hub: TaskHubStage,
) -> None:
    """It was lost, or the settings say now that histories go sooner."""
    await end(hub)
    instance = existing(await hub.binding.read_instance("op-test"))
    assert await purged(hub, SOON_AFTER) == 0
    record = await completed(hub)
    assert (record.document, record.run) == (instance.output, an_operation().run)
    assert record.expires_at == instance.updated_at + timedelta(days=1)
    assert await purged(hub, SOON_AFTER) == 0  # Not every process looks for it yet.
    assert await purged(hub, SOON_AFTER, after=timedelta(hours=1) + KNOWN_TO_ALL_AFTER) == 1
    assert await hub.binding.read_instance("op-test") is None
    again = of_type(Replayed, await submit(hub.binding, an_operation(created_at=NOW + timedelta(hours=1))))
    assert again.finished
    later = an_operation(created_at=NOW + timedelta(days=2), deadline_at=None)
    assert await submit(hub.binding, later) == Started()


async def test_a_history_does_not_wait_for_its_record_for_ever(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await end_and_lose(hub, monkeypatch)
    monkeypatch.setattr(IdempotencyRecord, "complete", lambda _self, _request: None)
    assert await purged(hub, SOON_AFTER, after=timedelta(days=8)) == 0
    assert await purged(hub, NOW + timedelta(hours=25), after=timedelta(days=8)) == 1


async def purged(hub: TaskHubStage, started_before: datetime, after: timedelta = timedelta(hours=1)) -> int:
    """Purge what started before an instant, one round so long after now; return how many histories went."""
    number, past = 0, Past(hub=hub.binding, now=NOW + after, before=started_before)
    while True:
        more, place = await purge_others(past)
        number, past = number + more, replace(past, after=place)
        if not place:
            return number
