from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import pytest
from azure.core.exceptions import HttpResponseError

from durable_retry.attempt.commits import commit_success
from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.dead_letters.actions import finish_interrupted
from durable_retry.dead_letters.records import (
    Intent,
    Purpose,
    begin_change,
    find_dead_letter,
    keep_operation,
    left_over,
    move_dead_letter,
)
from durable_retry.features.outbox import sending as outbox
from durable_retry.features.retention import rounds as retention
from durable_retry.features.retention.rounds import RetentionKind, look_at, look_at_all
from durable_retry.features.retention.walks import ROUND_EVERY
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import Plugin, plugins
from durable_retry.rules.dead_letters.record import archived
from durable_retry.runtime.deferred import deferred
from durable_retry.settings.retention import Retention
from durable_retry.upkeep import rounds as maintenance
from durable_retry.upkeep.rounds import finish_left_over, run_maintenance
from tests.support.builders import NOON, a_success, an_entry
from tests.support.hub import TaskHubStage

pytestmark = pytest.mark.usefixtures("own_tables", "clock_at_noon")


async def keep(number: int) -> str:
    return await keep_operation(an_entry(f"op-{number}"), NOON - timedelta(minutes=number))


async def test_intents_that_cannot_be_finished_keep_no_other_waiting(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as one run takes fail: the next run takes those behind them."""
    kept = sorted([await keep(number) for number in range(3)])
    for dead_letter_id in kept:
        await begin_change(dead_letter_id, Purpose.MOVE)
    real = finish_interrupted

    async def broken(binding: TaskHub, intent: Intent) -> None:
        if intent.dead_letter_id == kept[0]:
            raise HttpResponseError("refused")
        await real(binding, intent)

    monkeypatch.setattr(maintenance, "finish_interrupted", broken)
    monkeypatch.setattr(maintenance, "INTENTS_PER_RUN", 1)
    with pytest.raises(HttpResponseError):
        await finish_left_over(hub.binding, NOON + timedelta(hours=1))
    for _ in range(2):
        assert await finish_left_over(hub.binding, NOON + timedelta(hours=1)) == 1
    assert [intent.dead_letter_id for intent in (await left_over(10))[0]] == [kept[0]]


async def test_a_step_of_maintenance_that_fails_keeps_no_other_back(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await keep(1)
    await move_dead_letter(old, lambda record: archived(record, NOON - timedelta(days=31)))
    monkeypatch.setattr(retention, "retention", lambda: Retention(archived_for=timedelta(days=30)))
    monkeypatch.setattr(
        maintenance, "finish_left_over", AsyncMock(side_effect=HttpResponseError("left over"))
    )
    broken = AsyncMock(side_effect=HttpResponseError("a plugin"))
    monkeypatch.setattr(maintenance, "plugins", lambda: (Plugin(each_round=("broken",)), *plugins()))
    monkeypatch.setattr(maintenance, "deferred", lambda name: broken if name == "broken" else deferred(name))
    with pytest.raises(HttpResponseError):
        await run_maintenance(hub.binding, NOON)
    assert await find_dead_letter(old) is None


@pytest.mark.shows("P15")
async def test_each_run_of_maintenance_begins_one_step_later(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is cut off at its first step keeps no other step waiting for ever."""
    added = [deferred(step) for plugin in plugins() for step in plugin.each_round]
    begun: list[partial[Any]] = []

    async def cut_off(steps: Iterable[partial[Any]]) -> None:
        begun.append(next(iter(steps)))

    monkeypatch.setattr(maintenance, "run_each", cut_off)
    for number in range(30):
        await run_maintenance(hub.binding, NOON + number * maintenance.MAINTENANCE_EVERY)
    assert {step.func for step in begun} == {finish_left_over, *added}


@pytest.mark.shows("P15")
async def test_the_kinds_of_what_is_removed_take_turns_in_coming_first(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the hour of a turn maintenance begins with all of its steps, retention among them."""
    begun: list[str] = []

    async def cut_off(steps: Iterable[partial[Any]]) -> None:
        begun.append(next(iter(steps)).args[1])

    monkeypatch.setattr(retention, "run_each", cut_off)
    for number in range(30):
        await look_at_all(hub.binding, NOON + number * ROUND_EVERY)
    assert set(begun) == retention.kinds().keys() - {RetentionKind.RECORDS}
    steps = 1 + sum(len(plugin.each_round) for plugin in plugins())
    assert steps * maintenance.MAINTENANCE_EVERY <= ROUND_EVERY


async def test_a_part_that_cannot_be_removed_keeps_no_other_part_waiting(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[int] = []

    async def refuse_first(_: TaskHub, part: retention.RetentionPart, *__: Any) -> bool:
        if part.shard == 0:
            raise HttpResponseError("refused")
        removed.append(part.shard)
        return False

    monkeypatch.setattr(retention, "remove_past", refuse_first)
    with pytest.raises(HttpResponseError):
        await look_at(hub.binding, RetentionKind.MARKERS, NOON)
    assert removed == [1, 2, 3]


async def test_an_outbox_that_cannot_be_started_keeps_no_other_waiting(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = {"type": "charge.completed", "queue": "charge-events", "data": 1}
    for number in range(3):
        await commit_success(f"op-{number}", a_success(events=[event]), NOON)
    started: list[str] = []

    async def start(_: TaskHub, outbox_id: str) -> bool:
        started.append(outbox_id)
        if len(started) == 1:
            raise TaskHubUnavailableError("not this one")
        return True

    monkeypatch.setattr(outbox, "start_sending", start)
    monkeypatch.setattr(outbox, "NOTES_PER_SWEEP", 1)
    later = NOON + timedelta(hours=1)
    with pytest.raises(TaskHubUnavailableError):
        await outbox.sweep(hub.binding, later)
    for _ in range(12):  # the lists of the index are read one after the other
        await outbox.sweep(hub.binding, later)
    assert len(set(started[:3])) == 3
