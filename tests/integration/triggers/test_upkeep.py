import asyncio
import itertools
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from durabletask.client import EntityQuery

from durable_retry.attempt.commits import commit_success, own_location
from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.circuit.entity import CircuitEntity
from durable_retry.dead_letters.actions import finish_interrupted
from durable_retry.dead_letters.index import due
from durable_retry.dead_letters.records import (
    Intent,
    Purpose,
    begin_change,
    find_dead_letter,
    keep_operation,
    left_over,
    move_dead_letter,
)
from durable_retry.features.dead_letter_lists.pages import count_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.outbox.index_store import note_pending
from durable_retry.features.retention import removal as retention
from durable_retry.features.retention import rounds as retaining
from durable_retry.features.retention.rounds import RetentionKind, RetentionPart, look_at, remove_past
from durable_retry.features.retention.settings import RetentionSettings
from durable_retry.features.retention.walks import ROUND_EVERY
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import submit
from durable_retry.operations.entities import read_record
from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.circuit.transitions import ManualAction
from durable_retry.rules.dead_letters.record import Status, archived, restored
from durable_retry.runtime import clock
from durable_retry.storage import tables
from durable_retry.upkeep import rounds as maintenance
from durable_retry.upkeep.rounds import finish_left_over, run_maintenance
from durable_retry_console.alerts import health
from durable_retry_console.alerts import watch as alerts
from durable_retry_console.alerts.settings import AlertSettings
from durable_retry_console.alerts.watch import check_alerts
from tests.support.builders import a_success, an_entry, an_operation, failing
from tests.support.hub import TaskHubStage

pytestmark = pytest.mark.usefixtures("own_tables")

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ONE_AT_MOST: dict[str, Any] = {
    "alert_dead_letters": 1,
    "alert_dead_letter_age_seconds": 0,
    "alert_outbox_lag_seconds": 0,
}


@pytest.fixture(autouse=True)
def clock_at_now() -> Iterator[None]:
    with clock.reading(lambda: NOW):
        yield


def settle_on(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    of_alerts = {name: value for name, value in settings.items() if name.startswith("alert_")}
    of_retention = {name: value for name, value in settings.items() if name not in of_alerts}
    chosen, kept = AlertSettings(**(ONE_AT_MOST | of_alerts)), RetentionSettings(**of_retention)
    for module in (alerts, health):
        monkeypatch.setattr(module, "alert_settings", lambda: chosen)
    monkeypatch.setattr(retaining, "retention", lambda: kept.kept_for)


async def keep(number: int) -> str:
    return await keep_operation(an_entry(f"op-{number}"), NOW - timedelta(days=number))


async def test_an_alert_is_sent_once_and_again_when_it_clears(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settle_on(monkeypatch)
    first, _ = await keep(1), await keep(2)
    with caplog.at_level(logging.WARNING, logger="durable_retry_console.alerts.watch"):
        assert [alert.condition for alert in await check_alerts(hub.binding, NOW)] == ["dead_letters"]
    assert [record.getMessage() for record in caplog.records] == [
        "alert dead_letters raised: 2.0, threshold 1.0"
    ]
    assert await check_alerts(hub.binding, NOW + timedelta(minutes=1)) == []
    await move_dead_letter(first, lambda record: archived(record, NOW))
    (cleared,) = await check_alerts(hub.binding, NOW + timedelta(minutes=2))
    assert not cleared.is_raised
    assert await check_alerts(hub.binding, NOW + timedelta(minutes=3)) == []


async def test_age_and_circuits_are_metrics_too(hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch) -> None:
    settle_on(monkeypatch, alert_dead_letters=0, alert_dead_letter_age_seconds=3600)
    await keep(1)
    (alert,) = await check_alerts(hub.binding, NOW)
    assert (alert.condition, alert.value) == ("dead_letter_age_seconds", 86_400)
    look = await health.look_at_health(hub.binding, NOW)
    assert look.metrics.keys() >= {"outbox_lag_seconds", "circuit_open_seconds:payments"}


async def test_a_note_of_the_outbox_without_an_event_is_no_lag(hub: TaskHubStage) -> None:
    """The commit of a handler's writes was refused: nothing waits to be sent."""
    await note_pending("op-refused", own_location("op-refused"), NOW - timedelta(minutes=20))
    assert (await health.look_at_health(hub.binding, NOW)).metrics["outbox_lag_seconds"].value == 0
    event = {"type": "charge.completed", "queue": "charge-events", "data": 1}
    await commit_success("op-waits", a_success(events=[event]), NOW - timedelta(minutes=6))
    assert (await health.look_at_health(hub.binding, NOW)).metrics["outbox_lag_seconds"].value == 360


async def test_a_task_hub_that_is_away_is_an_alert_and_hides_nothing(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_on(monkeypatch, alert_circuit_open_seconds=60)
    circuit = CircuitEntity(hub.binding, "payments")
    action = ManualAction(ManualControl.OPEN, NOW, by="ada", reason="maintenance")
    await circuit.control(action)
    async with asyncio.timeout(20):
        while (await circuit.read()).state is CircuitState.CLOSED:  # noqa: ASYNC110 # asks over gRPC
            await asyncio.sleep(0.02)
    began = datetime.now(UTC) + timedelta(minutes=5)

    async def changes(minute: int) -> list[tuple[str, str]]:
        found = await check_alerts(hub.binding, began + timedelta(minutes=minute))
        return [(alert.condition, alert.state) for alert in found]

    assert await changes(0) == [("circuit_open_seconds:payments", "raised")]

    async def gone(*_: Any) -> None:
        raise TaskHubUnavailableError("gone")

    with monkeypatch.context() as outage:
        for question in ("read_instance", "read_entity"):
            outage.setattr(TaskHub, question, gone)
        await keep(1)
        await keep(2)
        assert await changes(1) == [("dead_letters", "raised")]
        assert await changes(2) == [("task_hub_away_seconds", "raised")]
        health._away_since.clear()  # Another process runs the timer from now on.
        assert await changes(3) == []
    assert await changes(4) == [("task_hub_away_seconds", "cleared")]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_circuit_that_cannot_be_read_silences_no_alert(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    settle_on(monkeypatch)
    await keep(1)
    await keep(2)

    async def damaged(_circuit: CircuitEntity) -> tuple[Breaker, str]:
        if fails:
            raise RecursionError
        return Breaker(), "KeyError: 'state'"

    monkeypatch.setattr(CircuitEntity, "readable", damaged)
    assert [alert.condition for alert in await check_alerts(hub.binding, NOW)] == ["dead_letters"]


async def test_archived_dead_letters_go_after_their_time_and_others_stay(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_on(monkeypatch, dead_letter_retention_days=30, history_retention_days=0)
    old, young, back, opened = [await keep(number) for number in range(4)]
    for dead_letter_id in (old, back):
        await move_dead_letter(dead_letter_id, lambda record: archived(record, NOW - timedelta(days=31)))
    await move_dead_letter(young, lambda record: archived(record, NOW - timedelta(days=29)))
    await move_dead_letter(back, restored)
    await run_maintenance(hub.binding, NOW)
    assert [await find_dead_letter(one) is None for one in (old, young, back, opened)] == [True] + [False] * 3
    assert await count_dead_letters(DeadLetterFilter(status=Status.ARCHIVED)) == 1
    assert await count_dead_letters(DeadLetterFilter(status=Status.OPEN)) == 2
    assert await due(NOW - timedelta(days=30), 10) == []


async def many_archived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep five, archived long ago, of which a step removes two."""
    settle_on(monkeypatch, dead_letter_retention_days=30, history_retention_days=0)
    monkeypatch.setattr(retention, "DEAD_LETTERS_PER_STEP", 2)
    for number in range(5):
        old = await keep(number)
        await move_dead_letter(old, lambda record: archived(record, NOW - timedelta(days=31)))


async def test_one_run_removes_all_that_is_past_its_time(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await many_archived(monkeypatch)
    await run_maintenance(hub.binding, NOW)
    assert await count_dead_letters(DeadLetterFilter()) == 0


async def test_what_a_look_leaves_is_removed_by_an_orchestration(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await many_archived(monkeypatch)
    part = RetentionPart(RetentionKind.DEAD_LETTERS, 0)
    hub.answer = lambda _name, _given: len(hub.activities) < 3
    seconds = itertools.count(step=retaining.LOOK_SECONDS)
    with clock.reading(clock.now, lambda: next(seconds)):
        await look_at(hub.binding, RetentionKind.DEAD_LETTERS, NOW)
    assert await count_dead_letters(DeadLetterFilter()) == 3
    assert await hub.binding.wait_for_end(part.instance_id, 20) is not None
    steps = [given for name, given in hub.activities if name == "remove_past"]
    assert steps == [{"kind": "dead_letters", "shard": 0}] * 3
    assert await remove_past(hub.binding, part, NOW, 60) is False
    assert await count_dead_letters(DeadLetterFilter()) == 0


async def test_a_step_that_fails_ends_the_orchestration_and_the_next_look_starts_it_again(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await many_archived(monkeypatch)

    def answer(_name: str, _given: dict[str, Any]) -> Any:
        if len(hub.activities) == 1:
            raise OSError("storage is away")
        return False

    hub.answer = answer
    for calls in (1, 2):
        with clock.reading(clock.now, partial(next, itertools.count(step=retaining.LOOK_SECONDS))):
            await look_at(hub.binding, RetentionKind.DEAD_LETTERS, NOW)
        assert (
            await hub.binding.wait_for_end(RetentionPart(RetentionKind.DEAD_LETTERS, 0).instance_id, 20)
            is not None
        )
        assert len(hub.activities) == calls


async def test_a_crash_in_the_middle_of_a_removal_is_made_up(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_on(monkeypatch, history_retention_days=0)
    dead_letter_id = await keep(0)
    await move_dead_letter(dead_letter_id, lambda record: archived(record, NOW - timedelta(days=31)))
    with monkeypatch.context() as crash:
        crash.setattr(tables, "delete_rows", None)
        with pytest.raises(TypeError):
            await run_maintenance(hub.binding, NOW)
    assert await find_dead_letter(dead_letter_id) is None
    await run_maintenance(hub.binding, NOW)
    assert await count_dead_letters(DeadLetterFilter()) == 0
    assert await due(NOW, 10) == []


async def test_an_intent_that_cannot_be_finished_does_not_hold_up_the_others(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = await keep(0), await keep(1)
    for dead_letter_id in (good, bad):
        await begin_change(dead_letter_id, Purpose.MOVE)
    real = finish_interrupted

    async def broken(binding: TaskHub, intent: Intent) -> None:
        if intent.dead_letter_id == bad:
            raise KeyError("operation")
        await real(binding, intent)

    monkeypatch.setattr(maintenance, "finish_interrupted", broken)
    assert await finish_left_over(hub.binding, NOW + timedelta(hours=1)) == 1
    assert [intent.dead_letter_id for intent in (await left_over(10))[0]] == [bad]


async def test_expired_records_leave_nothing_in_the_task_hub(hub: TaskHubStage) -> None:
    hub.answer = failing(0)
    operation = an_operation(operation_id="op-short", created_at=NOW, deadline_at=None, ttl_seconds=0)
    await submit(hub.binding, operation)
    await hub.binding.wait_for_end("op-short", 20)
    until, removed = NOW + timedelta(days=1), False
    async with asyncio.timeout(60):
        while not removed:
            until += ROUND_EVERY
            left = len(await entities(hub))
            assert await remove_past(hub.binding, RetentionPart(RetentionKind.RECORDS, 0), until, 60) is False
            removed = len(await entities(hub)) < left
            await asyncio.sleep(0.05)
    assert await read_record(hub.binding, "op-short") is None


@pytest.mark.long
async def test_a_record_goes_with_the_history_of_its_operation(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_on(monkeypatch, dead_letter_retention_days=0, history_retention_days=7)
    hub.answer = failing(0)
    operation = an_operation(operation_id="op-kept", created_at=NOW, deadline_at=None, ttl_seconds=86_400)
    await submit(hub.binding, operation)
    await hub.binding.wait_for_end("op-kept", 20)
    async with asyncio.timeout(20):
        record = await read_record(hub.binding, "op-kept")
        while record is None or record.document is None:
            await asyncio.sleep(0.05)
            record = await read_record(hub.binding, "op-kept")
    ended_at = datetime.now(UTC)
    await run_maintenance(hub.binding, ended_at + timedelta(days=6))
    assert await read_record(hub.binding, "op-kept") == record
    await run_maintenance(hub.binding, ended_at + timedelta(days=8))
    assert await hub.binding.read_instance("op-kept") is None
    assert "op-kept" not in str(await entities(hub))


async def entities(hub: TaskHubStage) -> list[Any]:
    """Return all entities that the task hub has, also those that hold nothing."""
    client = await hub.binding.client()
    return list(await client.get_all_entities(EntityQuery(include_transient=True)))
