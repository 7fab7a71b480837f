import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from durable_retry.base.errors import OverloadedError
from durable_retry.hub.task_hub import TaskHub
from durable_retry.intake import intake
from durable_retry.intake.intake import BackpressureMonitor, BehindError, HttpAdmission
from durable_retry.rules.intake import Backpressure, LagThresholds
from durable_retry.runtime import clock
from tests.support.builders import NOON, an_operation

HUB = TaskHub("{}")


@dataclass
class Starts:
    """A monitor on a clock of ours, over operations whose states the test sets."""

    monitor: BackpressureMonitor
    now: datetime = NOON
    states: dict[str, str | None] = field(default_factory=dict)
    looks: list[str] = field(default_factory=list)
    slept_seconds: list[float] = field(default_factory=list)

    def start(self, operation_id: str, dependency: str = "payments") -> None:
        self.states[operation_id] = "pending"
        self.monitor.note_start(an_operation(operation_id=operation_id, dependency=dependency))

    def after(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        self.slept_seconds.append(seconds)
        self.after(seconds)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Starts]:
    stage = Starts(
        BackpressureMonitor(LagThresholds(task_hub_seconds=30, dependency_seconds=60), pause_seconds=5)
    )
    stage.monitor.sleep = stage.sleep

    async def read(_hub: TaskHub, operation_id: str) -> Any:
        stage.looks.append(operation_id)
        return stage.states[operation_id]

    monkeypatch.setattr(TaskHub, "read_instance", read)
    monkeypatch.setattr(intake, "document_of", lambda state: {"status": state})
    with clock.reading(lambda: stage.now):
        yield stage


async def test_nothing_is_asked_before_anything_was_started(stage: Starts) -> None:
    assert await stage.monitor.backpressure(HUB, "payments") is None
    assert stage.looks == []


async def test_a_start_that_does_not_begin_holds_up_every_dependency(stage: Starts) -> None:
    stage.start("op-1")
    stage.after(31)
    assert await stage.monitor.backpressure(HUB, "payments") is Backpressure.TASK_HUB
    assert await stage.monitor.backpressure(HUB, "shipping") is Backpressure.TASK_HUB


async def test_an_open_circuit_holds_up_its_own_dependency_only(stage: Starts) -> None:
    stage.start("op-1")
    stage.states["op-1"] = "waiting_circuit"
    stage.after(61)
    assert await stage.monitor.backpressure(HUB, "payments") is Backpressure.DEPENDENCY
    assert await stage.monitor.backpressure(HUB, "shipping") is None


async def test_what_is_held_with_everything_is_accepted_all_the_same(
    stage: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = [{"kind": "freeze"}]
    monkeypatch.setattr(intake, "document_of", lambda state: {"status": state, "waits": waits})
    stage.start("op-1")
    stage.states["op-1"] = "waiting_circuit"
    stage.after(61)
    assert await stage.monitor.backpressure(HUB, "payments") is None


async def test_one_operation_is_looked_at_once_a_second_however_much_arrives(stage: Starts) -> None:
    for number in range(100):
        stage.start(f"op-{number}")
    for _ in range(100):
        stage.after(0.02)
        await stage.monitor.backpressure(HUB, "payments")
    assert stage.looks == ["op-0", "op-0"]


async def test_the_next_start_is_watched_once_the_last_one_moves_on(stage: Starts) -> None:
    stage.start("op-1")
    stage.states["op-1"] = "running"
    stage.after(1)
    assert await stage.monitor.backpressure(HUB, "payments") is None
    stage.start("op-2")
    stage.after(31)
    assert await stage.monitor.backpressure(HUB, "payments") is Backpressure.TASK_HUB
    assert stage.looks == ["op-1", "op-2"]


async def test_an_arrival_waits_and_goes_on_when_the_hub_has_caught_up(stage: Starts) -> None:
    stage.start("op-1")
    stage.after(31)

    async def sleep_and_catch_up(seconds: float) -> None:
        await stage.sleep(seconds)
        stage.states["op-1"] = "running" if len(stage.slept_seconds) == 2 else "pending"

    stage.monitor.sleep = sleep_and_catch_up
    await stage.monitor.admit(HUB, "shipping", may_be_left=True)
    assert stage.slept_seconds == [1.0, 1.0]


async def test_an_arrival_is_left_after_the_longest_pause_where_its_source_brings_it_again(
    stage: Starts,
) -> None:
    stage.start("op-1")
    stage.after(31)
    with pytest.raises(BehindError, match="the task hub is far behind"):
        await stage.monitor.admit(HUB, "payments", may_be_left=True)
    assert sum(stage.slept_seconds) == 5


async def test_an_arrival_is_started_late_rather_than_lost(stage: Starts) -> None:
    stage.start("op-1")
    stage.after(31)
    await stage.monitor.admit(HUB, "payments", may_be_left=False)
    assert sum(stage.slept_seconds) == 5


async def test_submissions_over_http_beyond_the_limit_are_refused_until_one_is_answered(
    stage: Starts,
) -> None:
    admission = HttpAdmission(2, 0, stage.monitor)
    async with admission.admitted(HUB):
        async with admission.admitted(HUB):
            with pytest.raises(OverloadedError, match="2 submissions are under way"):
                await admission.admitted(HUB).__aenter__()
        async with admission.admitted(HUB):
            assert admission.under_way == 2
    assert admission.under_way == 0


async def test_without_a_limit_any_number_is_under_way(stage: Starts) -> None:
    admission = HttpAdmission(0, 0, stage.monitor)
    async with admission.admitted(HUB), admission.admitted(HUB):
        assert admission.under_way == 2


async def test_submissions_over_http_are_refused_while_the_task_hub_is_far_behind(
    stage: Starts,
) -> None:
    admission = HttpAdmission(0, 0, stage.monitor)
    stage.start("op-1")
    stage.after(31)
    with pytest.raises(OverloadedError, match="has not begun within 30 s"):
        await admission.admitted(HUB).__aenter__()
    assert admission.under_way == 0
    stage.states["op-1"] = "running"
    stage.after(1)
    async with admission.admitted(HUB):
        assert admission.under_way == 1


async def test_a_task_hub_that_may_be_behind_is_not_asked(stage: Starts) -> None:
    admission = HttpAdmission(0, 0, BackpressureMonitor(LagThresholds(task_hub_seconds=0), pause_seconds=0))
    admission.monitor.note_start(an_operation(operation_id="op-1"))
    stage.after(1_000)
    async with admission.admitted(HUB):
        assert stage.looks == []


async def test_a_submission_that_fails_holds_no_place(stage: Starts) -> None:
    admission = HttpAdmission(1, 0, stage.monitor)
    with pytest.raises(ValueError, match="wrong"):
        async with admission.admitted(HUB):
            raise ValueError("wrong")
    assert admission.under_way == 0


@pytest.mark.parametrize(("most", "answered_at_once"), [(2, 3), (0, 0)])
async def test_who_would_wait_for_an_end_beyond_the_limit_is_answered_at_once(
    stage: Starts, monkeypatch: pytest.MonkeyPatch, most: int, answered_at_once: int
) -> None:
    ended = asyncio.Event()

    async def waits(*_: object) -> object:
        await ended.wait()
        return "the document"

    monkeypatch.setattr("durable_retry.intake.intake.end_within", waits)
    admission = HttpAdmission(1, most, stage.monitor)
    callers = [asyncio.create_task(admission.end_within(HUB, f"op-{n}", 30)) for n in range(5)]
    await asyncio.sleep(0)
    assert [caller.result() for caller in callers if caller.done()] == [None] * answered_at_once
    assert admission.waiting == 5 - answered_at_once
    admission.require_place()  # Who waits takes no place from who submits.
    ended.set()
    await asyncio.gather(*callers)
    assert admission.waiting == 0
