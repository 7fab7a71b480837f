"""Time in the hub: handed in, waited for in one place, and cheap however much of it is pending."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
import pytest

from onebox.clock import ManualClock
from onebox.hub import Hub, HubSettings
from onebox.hub import engine as engine_module
from onebox.hub.invoker import TurnRequest
from onebox.hub.model import Start, Status
from tests.support.onebox.backends import SDK_NOTICE, entity_state, running_hub, status_of
from tests.support.onebox.durable_app import App, AppInvoker
from tests.support.onebox.sample_app import make_app

pytestmark = SDK_NOTICE
COUNTER = "@counter@scheduled"


async def pass_time(hub: Hub, clock: ManualClock, until_idle_for: timedelta) -> None:
    """Move from one due instant to the next, for as long as the next is near enough."""
    end = clock.now() + until_idle_for
    await hub.settled()
    while (due := clock.next_due) is not None and due <= end:
        clock.advance_to(due)
        await hub.settled()
    clock.advance_to(end)


async def test_a_day_of_timers_passes_at_once_on_a_clock_that_is_moved(tmp_path: Path) -> None:
    clock = ManualClock()
    begun = clock.now()
    async with running_hub(tmp_path, make_app(), clock) as hub:
        await hub.tasks.start(Start("daily", "hourly", input="24"))
        await pass_time(hub, clock, timedelta(hours=25))
        state = hub.tasks.get("daily")
        assert state is not None
        assert state.status is Status.COMPLETED
        assert state.output == f'"{(begun + timedelta(hours=24)).replace(tzinfo=None).isoformat()}"'


async def test_no_timer_fires_early(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_hub(tmp_path, make_app(), clock) as hub:
        await hub.tasks.start(Start("nap", "sleeper", input="60"))
        await hub.settled()
        clock.advance(timedelta(seconds=60) - timedelta(microseconds=1))
        await hub.settled()
        assert status_of(hub, "nap") is Status.RUNNING
        clock.advance(timedelta(microseconds=1))
        await hub.settled()
        assert status_of(hub, "nap") is Status.COMPLETED


async def test_a_timer_that_came_due_while_the_hub_was_down_fires_at_its_start(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_hub(tmp_path, make_app(), clock) as hub:
        await hub.tasks.start(Start("nap", "sleeper", input="60"))
        await hub.settled()
    clock.advance(timedelta(minutes=5))
    async with running_hub(tmp_path, make_app(), clock) as hub:
        await hub.settled()
        assert status_of(hub, "nap") is Status.COMPLETED


DAY = timedelta(days=1)


async def test_a_timer_set_while_the_clock_was_ahead_comes_when_it_would_have(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    right = ManualClock()
    async with running_hub(tmp_path, make_app(), ManualClock(right.now() + DAY)) as hub:
        await hub.tasks.start(Start("nap", "sleeper", input="60"))
        await hub.settled()
    async with running_hub(tmp_path, make_app(), right) as hub:
        await hub.settled()
        assert "the newest commit is 1 day, 0:00:00 later than the clock" in caplog.text
        right.advance(timedelta(seconds=60) - timedelta(microseconds=1))
        await hub.settled()
        assert status_of(hub, "nap") is Status.RUNNING
        right.advance(timedelta(microseconds=1))
        await hub.settled()
        assert status_of(hub, "nap") is Status.COMPLETED


async def test_a_timer_set_before_the_clock_went_ahead_does_not_come_early(tmp_path: Path) -> None:
    right = ManualClock()
    async with running_hub(tmp_path, make_app(), right) as hub:
        await hub.tasks.start(Start("race", "event_or_timer", input=str(2 * DAY.total_seconds())))
        await hub.settled()
    async with running_hub(tmp_path, make_app(), ManualClock(right.now() + DAY)) as hub:
        await hub.tasks.suspend("race", None)
        await hub.settled()
        await hub.tasks.resume("race", None)
        await hub.settled()
    async with running_hub(tmp_path, make_app(), right) as hub:
        right.advance(2 * DAY - timedelta(microseconds=1))
        await hub.settled()
        assert status_of(hub, "race") is Status.RUNNING
        right.advance(timedelta(microseconds=1))
        await hub.settled()
        assert status_of(hub, "race") is Status.COMPLETED


async def test_a_clock_that_was_never_ahead_is_not_spoken_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    for name in ("first", "second"):
        async with running_hub(tmp_path, make_app(), clock) as hub:
            await hub.tasks.start(Start(name, "sleeper", input="60"))
            await hub.settled()
    assert "later than the clock" not in caplog.text


async def test_what_had_arrived_while_the_clock_was_ahead_is_seen_first(tmp_path: Path) -> None:
    right = ManualClock()
    async with running_hub(tmp_path, make_app(), ManualClock(right.now() + DAY)) as hub:
        await hub.tasks.start(Start("waits", "wait_for_go"))
        await hub.tasks.suspend("waits", None)
        await hub.settled()
        await hub.tasks.raise_event("waits", "go", "1")
    async with running_hub(tmp_path, make_app(), right) as hub:
        await hub.tasks.raise_event("waits", "go", "2")
        await hub.tasks.resume("waits", None)
        state = await hub.tasks.wait_finished("waits")
        assert state.output == "1"


async def test_an_event_that_came_in_time_wins_against_a_timer_that_both_came_while_down(
    tmp_path: Path,
) -> None:
    """Messages are seen in the order in which they arrived, and a timer arrives when it is due."""
    clock = ManualClock()
    async with running_hub(tmp_path, make_app(), clock) as hub:
        await hub.tasks.start(Start("race", "event_or_timer", input="60"))
        await hub.settled()
        await hub.tasks.suspend("race", None)
        await hub.settled()
        clock.advance(timedelta(seconds=30))
        await hub.tasks.raise_event("race", "go", None)
        clock.advance(timedelta(seconds=60))
        await hub.settled()
        await hub.tasks.resume("race", None)
        await hub.settled()
        state = hub.tasks.get("race")
        assert state is not None
        assert state.output == '"event"'


async def test_a_scheduled_signal_is_delivered_when_it_is_due(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_hub(tmp_path, make_app(), clock) as hub:
        await hub.tasks.signal_entity(COUNTER, "add", "5", at=clock.now() + timedelta(hours=1))
        await hub.settled()
        assert hub.tasks.get_entity(COUNTER) is None
        clock.advance(timedelta(hours=1))
        await hub.settled()
        assert entity_state(hub, COUNTER) == "5"


class CountingInvoker(AppInvoker):
    """Lets entities count their operations without the SDK, which is most of the cost of many."""

    async def entity(self, name: str, request: pb.EntityBatchRequest) -> pb.EntityBatchResult:  # noqa: ARG002 # there is one entity
        result = pb.EntityBatchResult(results=[pb.OperationResult(success={})] * len(request.operations))
        result.entityState.value = str(int(request.entityState.value or 0) + len(request.operations))
        return result


@pytest.mark.long
async def test_fifty_thousand_pending_timers_hold_and_fire(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_hub(tmp_path, CountingInvoker(make_app()), clock) as hub:
        due = clock.now() + timedelta(hours=1)
        tasks_before = len(asyncio.all_tasks())
        for _ in range(50):
            await asyncio.gather(
                *(
                    hub.tasks.signal_entity(COUNTER, "add", "1", at=due + timedelta(seconds=number))
                    for number in range(1_000)
                )
            )
        engine = hub._engine
        assert engine is not None
        assert len(engine._timers._stored) <= 20_000, "only the nearest timers are in memory"
        assert len(asyncio.all_tasks()) < tasks_before + 50, "no task per timer"
        await hub.settled()
        clock.advance(timedelta(hours=2))
        await hub.settled()
        assert entity_state(hub, COUNTER) == "50000"


@pytest.mark.long
async def test_a_thousand_who_wait_hold_no_thread_and_no_task(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_hub(tmp_path, make_app(), clock) as hub:
        await hub.tasks.start(Start("first", "sleeper", input="3600"))
        await hub.settled()
        threads, tasks = threading.active_count(), len(asyncio.all_tasks())
        for name in ("sleeper", "event_or_timer"):
            await asyncio.gather(
                *(hub.tasks.start(Start(f"{name}-{number}", name, input="3600")) for number in range(500))
            )
        await hub.settled()
        assert threading.active_count() <= threads + 1, "a slow commit starts the thread of commits"
        assert len(asyncio.all_tasks()) < tasks + 10


async def test_nothing_wakes_an_idle_hub(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_hub(tmp_path, make_app(), clock) as hub:
        await hub.tasks.start(Start("nap", "sleeper", input="3600"))
        await hub.settled()
        clock.advance(timedelta(minutes=30))
        counts = [await wake_ups_in_half_a_second() for _ in range(_WINDOWS)]
        # One at the end of the sleep. What happens once, such as the last word of a thread, is in one window.
        assert min(counts) == 1, counts


_WINDOWS = 3


async def wake_ups_in_half_a_second() -> int:
    with counted_wake_ups() as wake_ups:
        await asyncio.sleep(0.5)
    return wake_ups.count


class WakeUps:
    """How often the event loop was woken."""

    count = 0


@contextmanager
def counted_wake_ups() -> Iterator[WakeUps]:
    """Count how often the running loop comes back from waiting for something to happen."""
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined] # every selector loop has one
    select, counted = selector.select, WakeUps()

    def counting(timeout: float | None = None) -> Any:
        found = select(timeout)
        counted.count += timeout != 0
        return found

    selector.select = counting
    try:
        yield counted
    finally:
        del selector.select


class RecordingInvoker(AppInvoker):
    """Remembers which orchestrator ran when."""

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self.ran: list[str] = []
        self.seen: Callable[[], None] = lambda: None

    def is_immediate(self, name: str, *, is_entity: bool) -> bool:  # noqa: ARG002 # all of them wait
        return False

    async def orchestrator(self, name: str, request: TurnRequest) -> pb.OrchestratorResponse:
        self.ran.append(name)
        self.seen()
        await asyncio.sleep(0)
        return await super().orchestrator(name, request)


async def test_of_many_timers_that_are_due_at_once_a_bounded_number_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_MOST_DUE", 20)
    clock, invoker, taken_up = ManualClock(), RecordingInvoker(make_app()), list[int]()
    async with running_hub(tmp_path, invoker, clock, HubSettings(max_turns=1)) as hub:
        await asyncio.gather(
            *(hub.tasks.start(Start(f"nap-{number}", "sleeper", input="60")) for number in range(200))
        )
        await hub.settled()
        engine = hub._engine
        assert engine is not None
        invoker.seen = lambda: taken_up.append(engine._turns.due)
        clock.advance(timedelta(seconds=60))
        async with asyncio.timeout(60):
            await asyncio.gather(*(hub.tasks.wait_finished(f"nap-{number}") for number in range(200)))
        assert len(taken_up) == 200
        assert 0 < max(taken_up) <= 20


async def test_a_timer_that_comes_due_while_the_others_are_taken_up_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with running_hub(tmp_path, RecordingInvoker(make_app()), clock) as hub:
        await hub.tasks.start(Start("nap", "sleeper", input="60"))
        await hub.settled()
        engine = hub._engine
        assert engine is not None
        take_up = engine._wake_due

        def while_time_passes() -> None:
            take_up()
            monkeypatch.undo()
            clock.advance(timedelta(seconds=60))

        monkeypatch.setattr(engine, "_wake_due", while_time_passes)
        engine._timer_moved.set()
        async with asyncio.timeout(20):
            await hub.tasks.wait_finished("nap")


async def test_a_due_timer_is_not_stuck_behind_a_backlog_of_starts(tmp_path: Path) -> None:
    clock, invoker = ManualClock(), RecordingInvoker(make_app())
    async with running_hub(tmp_path, invoker, clock, HubSettings(max_turns=1)) as hub:
        await hub.tasks.start(Start("retry", "sleeper", input="60"))
        await hub.settled()
        starts = (hub.tasks.start(Start(f"first-{number}", "no_steps")) for number in range(300))
        await asyncio.gather(*starts)
        before = len(invoker.ran)
        clock.advance(timedelta(seconds=60))
        await hub.tasks.wait_finished("retry")
        turns_between = len(invoker.ran) - before
        assert turns_between < 20
        await hub.settled()
        assert invoker.ran.count("no_steps") == 300
