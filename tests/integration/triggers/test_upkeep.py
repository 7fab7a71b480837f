"""The watch and the maintenance, against real storage and a task hub."""

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.alert import Thresholds
from engine.dead_letter import Status, archived, restored
from engine.dead_letter_filter import Filter
from engine.idempotency import operation_id_for
from stores import clock, tables
from stores.alerts import known_alerts
from stores.dead_letter_index import due
from stores.dead_letter_intents import Intent, Purpose, announce, left_over
from stores.dead_letter_list import count_dead_letters
from stores.dead_letters import find_dead_letter, keep_operation, move_dead_letter
from stores.retention import DEAD_LETTERS_PER_STEP, clean_expired_records
from stores.submission import submit
from stores.task_hub import TaskHubUnavailableError, read_operation, read_record, wait_for_operation
from stores.upkeep_settings import UpkeepSettings, Webhook
from stores.watched import read_all
from tests.dead_letter_samples import an_entry, use_own_tables
from tests.operation_stage import an_operation, failing
from tests.task_hub_stage import TaskHubStage
from triggers import maintenance, watch
from triggers.maintenance import finish_left_over, upkeep
from triggers.replaying import finish_replay
from triggers.watch import look

pytestmark = pytest.mark.usefixtures("storage")

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ONE_AT_MOST = Thresholds(dead_letters=1, dead_letter_age_seconds=0, outbox_lag_seconds=0)


@pytest.fixture(autouse=True)
def tables_of_its_own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    use_own_tables(request.node.name, monkeypatch)
    with clock.reading(lambda: NOW):
        yield


def settle_on(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    chosen = UpkeepSettings(**({"thresholds": ONE_AT_MOST} | settings))
    monkeypatch.setattr(watch, "upkeep_settings", lambda: chosen)
    monkeypatch.setattr(maintenance, "upkeep_settings", lambda: chosen)


async def keep(number: int) -> str:
    return await keep_operation(an_entry(f"op-{number}"), NOW - timedelta(days=number))


async def test_an_alert_is_raised_once_and_told_again_when_it_clears(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settle_on(monkeypatch)
    first, _ = await keep(1), await keep(2)
    with caplog.at_level(logging.WARNING, logger="triggers.watch"):
        assert [alert.condition for alert in await look(hub.binding, NOW)] == ["dead_letters"]
    assert [record.getMessage() for record in caplog.records] == [
        "alert dead_letters raised: 2.0, threshold 1"
    ]
    assert await look(hub.binding, NOW + timedelta(minutes=1)) == []
    await move_dead_letter(first, lambda record: archived(record, NOW))
    (cleared,) = await look(hub.binding, NOW + timedelta(minutes=2))
    assert not cleared.is_raised
    assert await look(hub.binding, NOW + timedelta(minutes=3)) == []


async def test_age_and_circuits_are_watched_too(hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds = Thresholds(dead_letters=0, dead_letter_age_seconds=3600)
    settle_on(monkeypatch, thresholds=thresholds)
    await keep(1)
    (alert,) = await look(hub.binding, NOW)
    assert (alert.condition, alert.value) == ("dead_letter_age_seconds", 86_400)
    watched = await read_all(hub.binding, NOW)
    assert {reading.condition for reading in watched.readings(thresholds)} >= {
        "outbox_lag_seconds",
        "circuit_open_seconds:payments",
    }


async def test_a_webhook_is_an_operation_with_a_key_of_the_alert(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_on(monkeypatch, webhook=Webhook("payments", "/alerts"))
    hub.answer = failing(0)
    await keep(1)
    await keep(2)
    # The task hub has a clock of its own, and the operation a deadline.
    (alert,) = await look(hub.binding, datetime.now(UTC))
    operation_id = operation_id_for("source:watch", alert.id)
    await wait_for_operation(hub.binding, operation_id, 20)
    (call,) = [given for name, given in hub.activities if name == "attempt"]
    assert call["operation"]["key"] == alert.id
    assert call["operation"]["request"]["json"] == alert.document()


async def test_what_could_not_be_told_is_told_by_the_next_run(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_on(monkeypatch, webhook=Webhook("payments", "/alerts"))
    await keep(1)
    await keep(2)

    async def gone(*_: Any) -> None:
        raise TaskHubUnavailableError("gone")

    with monkeypatch.context() as outage:
        outage.setattr(watch, "submit", gone)
        with pytest.raises(TaskHubUnavailableError):
            await look(hub.binding, NOW)
    assert not (await known_alerts())["dead_letters"].is_told
    (told,) = await look(hub.binding, NOW + timedelta(minutes=1))
    assert told.since == NOW


async def test_archived_dead_letters_go_after_their_time_and_others_stay(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_on(monkeypatch, archived_for=timedelta(days=30), history_for=None)
    old, young, back, opened = [await keep(number) for number in range(4)]
    for dead_letter_id in (old, back):
        await move_dead_letter(dead_letter_id, lambda record: archived(record, NOW - timedelta(days=31)))
    await move_dead_letter(young, lambda record: archived(record, NOW - timedelta(days=29)))
    await move_dead_letter(back, restored)
    await upkeep(hub.binding, NOW)
    assert [await find_dead_letter(one) is None for one in (old, young, back, opened)] == [True] + [False] * 3
    assert await count_dead_letters(Filter(status=Status.ARCHIVED)) == 1
    assert await count_dead_letters(Filter(status=Status.OPEN)) == 2
    assert await due(NOW - timedelta(days=30), 10) == []


async def test_a_crash_in_the_middle_of_a_removal_is_made_up(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_on(monkeypatch, history_for=None)
    dead_letter_id = await keep(0)
    await move_dead_letter(dead_letter_id, lambda record: archived(record, NOW - timedelta(days=31)))
    with monkeypatch.context() as crash:
        crash.setattr(tables, "transact", None)
        with pytest.raises(TypeError):
            await upkeep(hub.binding, NOW)
    assert await find_dead_letter(dead_letter_id) is None
    await upkeep(hub.binding, NOW)
    assert await count_dead_letters(Filter()) == 0
    assert await due(NOW, DEAD_LETTERS_PER_STEP) == []


async def test_finished_histories_go_after_their_time(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_on(monkeypatch, archived_for=None, history_for=timedelta(days=7))
    hub.answer = failing(0)
    operation = an_operation(operation_id="op-old", created_at=NOW, deadline_at=None)
    await submit(hub.binding, operation)
    await wait_for_operation(hub.binding, "op-old", 20)
    started_at = datetime.now(UTC)
    await upkeep(hub.binding, started_at + timedelta(days=6))
    assert await read_operation(hub.binding, "op-old") is not None
    await upkeep(hub.binding, started_at + timedelta(days=8))
    assert await read_operation(hub.binding, "op-old") is None


async def test_an_intent_that_cannot_be_finished_does_not_hold_up_the_others(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = await keep(0), await keep(1)
    for dead_letter_id in (good, bad):
        await announce(dead_letter_id, Purpose.MOVE)
    real = finish_replay

    async def broken(binding: str, intent: Intent) -> None:
        if intent.dead_letter_id == bad:
            raise KeyError("operation")
        await real(binding, intent)

    monkeypatch.setattr(maintenance, "finish_replay", broken)
    assert await finish_left_over(hub.binding, NOW + timedelta(hours=1)) == 1
    assert [intent.dead_letter_id for intent in await left_over(10)] == [bad]


async def test_expired_records_leave_nothing_in_the_task_hub(hub: TaskHubStage) -> None:
    hub.answer = failing(0)
    operation = an_operation(operation_id="op-short", created_at=NOW, deadline_at=None, ttl_seconds=0)
    await submit(hub.binding, operation)
    await wait_for_operation(hub.binding, "op-short", 20)
    async with asyncio.timeout(20):
        while await clean_expired_records(hub.binding) == 0:  # noqa: ASYNC110 # asks another process
            await asyncio.sleep(0.05)
    assert await read_record(hub.binding, "op-short") is None
