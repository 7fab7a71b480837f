"""Heartbeats of a handler: what keeps an attempt alive, what is stored, and what the next attempt gets.

The time of the event loop stands still but for what a test adds.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import durable_retry
from durable_retry.attempt.attempt import make_attempt
from durable_retry.base.names import Category, OperationState
from durable_retry.features.handlers import records, registry
from durable_retry.features.handlers.call import Calls
from durable_retry.features.handlers.rules.steps import HEARTBEAT, MAX_PROGRESS_BYTES, RememberedStep
from durable_retry.features.handlers.shown import steps_shown
from durable_retry.handlers import Call
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.operations.status import HeartbeatNote
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.policy import Timeouts
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from durable_retry.storage import tables
from tests.support.builders import an_operation
from tests.support.narrowing import existing, of_type
from tests.support.tables import TablesInMemory

pytestmark = pytest.mark.usefixtures("no_handlers", "tables_in_memory")

CONFIG = "[dependencies.warehouse]\ntimeouts = { attempt_seconds = 100 }\n"


class StillLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when a test says so."""

    now = 1_000.0

    def time(self) -> float:
        return self.now


async def pass_seconds(seconds: float) -> None:
    loop = of_type(StillLoop, asyncio.get_running_loop())
    loop.now += seconds
    for _ in range(5):
        await asyncio.sleep(0)


def attempt(
    function: Callable[..., Any], number: int = 1, run: int = 1, seconds: float = 100, **options: Any
) -> AttemptOutcome:
    """Make one attempt of at most these seconds of a function that is an operation with these options."""
    registry._handlers.clear()
    durable_retry.operation("copy", dependency="warehouse", **options)(function)
    operation = an_operation(handler="copy", request=None, input={}, dependency="warehouse", deadline_at=None)
    operation = replace(operation, run=run, timeouts=Timeouts(attempt_seconds=seconds))
    with using(parse_config(CONFIG, {})), asyncio.Runner(loop_factory=StillLoop) as runner:
        return runner.run(make_attempt(operation, number))


def heartbeat_shown(run: int = 1) -> HeartbeatNote | None:
    found = asyncio.run(steps_shown(an_operation().operation_id, run, OperationState.RUNNING))
    assert found[0] == [], "it is no step"
    return found[1]


async def copy_steadily(call: Call) -> int:
    for page in range(5):
        await pass_seconds(9)
        call.heartbeat({"page": page})
    return 5


def test_heartbeats_are_for_functions_that_ask_for_them() -> None:
    async def copy(call: Call) -> None:
        call.heartbeat(1)

    outcome = attempt(copy)
    assert outcome.is_our_bug
    assert "heartbeat_seconds" in str(outcome.error)


def test_an_attempt_lives_as_long_as_it_reports() -> None:
    outcome = attempt(copy_steadily, heartbeat_seconds=10)
    assert (outcome.category, outcome.result) == (None, {"value": 5})


def test_an_attempt_that_reports_no_more_is_cut_off_long_before_its_time() -> None:
    async def copy(call: Call) -> None:
        call.heartbeat(1)
        await pass_seconds(11)
        await asyncio.Event().wait()

    outcome = attempt(copy, heartbeat_seconds=10)
    assert (outcome.category, outcome.error) == (
        Category.TRANSIENT,
        "TimeoutError: no heartbeat within 10 s",
    )


def test_heartbeats_do_not_stretch_the_time_of_an_attempt() -> None:
    async def copy(call: Call) -> None:
        while True:
            await pass_seconds(9)
            call.heartbeat()

    outcome = attempt(copy, heartbeat_seconds=10, seconds=50)
    assert outcome.category is Category.TRANSIENT
    assert "no heartbeat" not in str(outcome.error)


def test_what_was_reported_is_shown_and_given_to_the_next_attempt() -> None:
    seen: list[Any] = []

    async def copy(call: Call) -> int:
        seen.append(call.progress)
        call.heartbeat({"page": 1})
        call.heartbeat({"page": 2})
        if call.attempt == 1:
            raise durable_retry.Transient("away")
        return 2

    attempt(copy, heartbeat_seconds=10)
    shown = existing(heartbeat_shown())
    assert (shown.attempt, shown.progress) == (1, {"page": 2})
    assert attempt(copy, number=2, heartbeat_seconds=10).category is None
    assert seen == [None, {"page": 2}]


def test_a_later_attempt_or_run_is_not_overwritten_by_one_that_was_left_behind() -> None:
    assert attempt(copy_steadily, number=2, run=2, heartbeat_seconds=10).category is None
    assert attempt(copy_steadily, number=1, run=2, heartbeat_seconds=10).category is None
    assert existing(heartbeat_shown(run=2)).attempt == 2


def test_a_sync_function_reports_from_its_thread_until_its_attempt_is_over() -> None:
    left: list[Call] = []

    def copy(call: Call) -> str:
        left.append(call)
        call.heartbeat("half")
        return "copied"

    assert attempt(copy, heartbeat_seconds=10).result == {"value": "copied"}
    with pytest.raises(TimeoutError, match="this attempt is over"):
        left[0].heartbeat("more")


def test_too_much_progress_is_a_mistake_in_the_function() -> None:
    async def copy(call: Call) -> None:
        call.heartbeat("x" * MAX_PROGRESS_BYTES)

    outcome = attempt(copy, heartbeat_seconds=10)
    assert outcome.is_our_bug
    assert "a heartbeat takes 16384" in str(outcome.error)


def test_a_function_without_heartbeats_reads_and_writes_nothing_for_them(
    tables_in_memory: TablesInMemory,
) -> None:
    async def copy() -> None:
        return None

    attempt(copy)
    assert tables_in_memory.rows(records.TABLE) == []


def test_an_attempt_whose_run_was_overtaken_ends() -> None:
    async def copy(call: Call) -> None:
        await records.change_step("op-test", 1, HEARTBEAT, written_by_run_3)
        call.heartbeat(1)
        await pass_seconds(1)
        await asyncio.Event().wait()

    def written_by_run_3(record: RememberedStep | None) -> RememberedStep:
        assert record is not None
        return replace(record, run=3)

    outcome = attempt(copy, heartbeat_seconds=10)
    assert outcome.category is Category.AMBIGUOUS
    assert "run 3 of this key has begun" in str(outcome.error)


def test_a_heartbeat_that_cannot_be_read_hides_nothing(tables_in_memory: TablesInMemory) -> None:
    attempt(copy_steadily, heartbeat_seconds=10)
    (row,) = (row for row in tables_in_memory.rows(records.TABLE) if row["RowKey"].endswith(HEARTBEAT))
    damaged = {name: row[name] for name in ("PartitionKey", "RowKey")} | {"record_0": "{"}
    asyncio.run(tables.merge(records.TABLE, damaged))
    assert heartbeat_shown() is None


def test_an_attempt_whose_time_our_own_storage_took_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, read = [0.0], Calls.begin_heartbeats

    async def slow(calls: Calls, every: float) -> None:
        await read(calls, every)
        seconds[0] += 101

    async def copy() -> None:
        raise AssertionError("it has no time left")

    monkeypatch.setattr(clock, "monotonic_seconds", lambda: seconds[0])
    monkeypatch.setattr(Calls, "begin_heartbeats", slow)
    outcome = attempt(copy, heartbeat_seconds=30)
    assert (outcome.category, outcome.counted) == (Category.TRANSIENT, False)
