"""The weaker terms of Azure Storage: each of them alone and always, then all of them over the sample app."""

import asyncio
import json
from collections import Counter
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from durabletask import task
from durabletask.entities import DurableEntity, EntityInstanceId

from onebox.clock import ManualClock
from onebox.hub import Hub, HubSettings
from onebox.hub.azure_terms import Chances
from onebox.hub.model import InstanceExistsError, Start, Status, now_us
from onebox.hub.settings import AzureTerms
from tests.support.onebox.backends import SDK_NOTICE, eventually, running_hub, status_of
from tests.support.onebox.durable_app import App

pytestmark = SDK_NOTICE

NEVER = {"lost": 0.0, "repeated": 0.0, "overtaken": 0.0, "doubled": 0.0, "raced": 0.0, "skew_seconds": 0.0}
COUNTER = EntityInstanceId("counter", "one")


def only(**shares: float) -> HubSettings:
    """Settings of a hub in which one thing happens as on Azure."""
    return HubSettings(azure=AzureTerms(1, **(NEVER | shares)))


class Seen:
    """What an app's functions were given."""

    def __init__(self) -> None:
        self.activities: Counter[str] = Counter()
        self.times: list[datetime] = []
        self.added = 0


plain = App()


@plain.orchestrator
def sleeper(ctx: task.OrchestrationContext, seconds: float) -> Generator[task.Task[Any], Any, Any]:
    yield ctx.create_timer(timedelta(seconds=seconds))
    return "rested"


@plain.orchestrator
def heard_twice(ctx: task.OrchestrationContext, _: Any) -> Generator[task.Task[Any], Any, Any]:
    first = yield ctx.wait_for_external_event("said")
    second = yield ctx.wait_for_external_event("said")
    return [first, second]


@plain.entity
class Notes(DurableEntity):
    def note(self, number: int) -> None:
        self.set_state([*self.get_state(list, []), number])


@plain.orchestrator
def notes(ctx: task.OrchestrationContext, count: int) -> None:
    for number in range(count):
        ctx.signal_entity(EntityInstanceId("notes", "all"), "note", number)


def small_app(seen: Seen) -> App:
    app = App()

    @app.activity
    def double(value: int) -> int:
        seen.activities["double"] += 1
        return value * 2

    @app.entity
    class Counter(DurableEntity):
        def add(self, amount: int) -> int:
            seen.added += 1
            total: int = self.get_state(int, 0) + amount
            self.set_state(total)
            return total

    @app.orchestrator
    def doubled(ctx: task.OrchestrationContext, value: int) -> Generator[task.Task[Any], Any, Any]:
        if not ctx.is_replaying:
            seen.times.append(ctx.current_utc_datetime)
        first = yield ctx.call_activity("double", input=value)
        if not ctx.is_replaying:
            seen.times.append(ctx.current_utc_datetime)
        return (yield ctx.call_activity("double", input=first))

    @app.orchestrator
    def counted(ctx: task.OrchestrationContext, amount: int) -> Generator[task.Task[Any], Any, Any]:
        return (yield ctx.call_entity(COUNTER, "add", amount))

    @app.orchestrator
    def parent(ctx: task.OrchestrationContext, value: int) -> Generator[task.Task[Any], Any, Any]:
        return (yield ctx.call_sub_orchestrator("doubled", input=value))

    app.include(plain)
    return app


@pytest.fixture
def seen() -> Seen:
    return Seen()


async def all_ended(hub: Hub, starts: list[Start]) -> list[Any]:
    """Start instances at once and return what they end with, as JSON texts."""
    for start in starts:
        await hub.tasks.start(start)
    ended = [await hub.tasks.wait_finished(start.instance_id) for start in starts]
    assert {state.status for state in ended} == {Status.COMPLETED}, ended
    return [state.output for state in ended]


@pytest.mark.long
async def test_a_turn_that_is_not_stored_runs_again_and_its_messages_go_out_twice(
    tmp_path: Path, seen: Seen
) -> None:
    async with running_hub(tmp_path, small_app(seen), settings=only(lost=0.5)) as hub:
        starts = [Start(f"i{number}", "parent", input=str(number)) for number in range(6)]
        assert await all_ended(hub, starts) == [str(4 * number) for number in range(6)]
    assert seen.activities["double"] > 2 * len(starts)


@pytest.mark.long
async def test_a_batch_that_is_not_stored_runs_again(tmp_path: Path, seen: Seen) -> None:
    async with running_hub(tmp_path, small_app(seen), settings=only(lost=0.5)) as hub:
        for _ in range(6):
            await hub.tasks.signal_entity(str(COUNTER), "add", "1")

        async def is_added() -> bool:
            entity = hub.tasks.get_entity(str(COUNTER))
            return entity is not None and entity.state == "6"

        await eventually(is_added)
    assert seen.added > 6


async def test_an_answer_of_an_entity_to_a_call_of_a_lost_turn_is_nobodys(tmp_path: Path, seen: Seen) -> None:
    async with running_hub(tmp_path, small_app(seen), settings=only(lost=0.5, repeated=1)) as hub:
        starts = [Start(f"i{number}", "counted", input="1") for number in range(6)]
        answers = await all_ended(hub, starts)
    assert all(int(answer) >= 1 for answer in answers)
    assert seen.added > 6


async def test_an_event_comes_twice(tmp_path: Path, seen: Seen) -> None:
    async with running_hub(tmp_path, small_app(seen), settings=only(repeated=1)) as hub:
        await hub.tasks.start(Start("i", "heard_twice"))
        await hub.tasks.raise_event("i", "said", '"hello"')
        assert (await hub.tasks.wait_finished("i")).output == '["hello", "hello"]'


@pytest.mark.shows("H2")
async def test_messages_to_entities_overtake_each_other_and_come_twice(tmp_path: Path, seen: Seen) -> None:
    clock = ManualClock()
    settings = only(overtaken=0.5, repeated=0.5)
    async with running_hub(tmp_path, small_app(seen), clock, settings) as hub:
        await hub.tasks.start(Start("i", "notes", input="20"))
        for _ in range(70):
            await hub.settled()
            clock.advance(timedelta(seconds=0.1))
        entity = hub.tasks.get_entity("@notes@all")
        assert entity is not None
        noted = json.loads(entity.state or "")
    assert set(noted) == set(range(20))
    assert len(noted) > 20, "some come twice"
    first = list(dict.fromkeys(noted))
    assert first != sorted(first), "some are overtaken"


@pytest.mark.long
async def test_an_activity_runs_twice_and_one_answer_counts(tmp_path: Path, seen: Seen) -> None:
    async with running_hub(tmp_path, small_app(seen), settings=only(doubled=1)) as hub:
        for number in range(5):  # The second run comes too late where the first has ended already.
            await all_ended(hub, [Start(f"i{number}", "doubled", input="1")])
    assert seen.activities["double"] >= 10


async def test_an_orchestrators_time_is_that_of_the_machine_that_runs_the_turn(
    tmp_path: Path, seen: Seen
) -> None:
    clock = ManualClock()
    async with running_hub(tmp_path, small_app(seen), clock, only(skew_seconds=15)) as hub:
        for number in range(10):
            await hub.tasks.start(Start(f"i{number}", "doubled", input="1"))
        await hub.settled()
    off = {round((each.replace(tzinfo=UTC) - clock.now()).total_seconds(), 3) for each in seen.times}
    assert len(off) == 4, "one machine for each partition"
    assert min(off) < -1
    assert max(off) > 1
    assert max(map(abs, off)) <= 15


def test_a_partition_that_moves_has_another_clock_and_the_others_keep_theirs() -> None:
    chances = Chances(AzureTerms(1))
    names = [f"i{number}" for number in range(20)]
    before = {name: chances.skew_us(name) for name in names}
    assert len(set(before.values())) == 4
    chances.move("i0")
    moved = {name for name in names if chances.skew_us(name) != before[name]}
    assert moved == {name for name in names if before[name] == before["i0"]}


@pytest.mark.parametrize("asked", [3, 2.9, 0.9])
@pytest.mark.shows("H19")
async def test_a_timer_fires_late_by_what_was_measured_on_the_host(
    asked: float, tmp_path: Path, seen: Seen
) -> None:
    clock = ManualClock()
    async with running_hub(tmp_path, small_app(seen), clock, only()) as hub:
        names = [f"i{number}" for number in range(40)]
        for name in names:
            await hub.tasks.start(Start(name, "sleeper", input=str(asked)))
        await hub.settled()
        ended = []
        for seconds in (asked + 0.89, 0.21, 0.6):
            clock.advance(timedelta(seconds=seconds))
            await hub.settled()
            states = [hub.tasks.get(name) for name in names]
            ended.append([state is not None and state.status is Status.COMPLETED for state in states])
    assert not any(ended[0]), "none is less than 0.9 s late"
    assert set(ended[1]) == {False, True}, "not all of them are as late"
    assert all(ended[2]), "none is more than 1.7 s late"


async def test_a_start_for_later_is_as_late(tmp_path: Path, seen: Seen) -> None:
    clock = ManualClock()
    async with running_hub(tmp_path, small_app(seen), clock, only()) as hub:
        due_us = now_us(clock) + 3_000_000
        await hub.tasks.start(Start("i", "doubled", input="1", start_at_us=due_us))
        for seconds, status in ((3.89, Status.PENDING), (0.81, Status.COMPLETED)):
            clock.advance(timedelta(seconds=seconds))
            await hub.settled()
            assert status_of(hub, "i") is status


async def test_of_two_starts_at_once_both_are_accepted_and_one_is_dropped(tmp_path: Path, seen: Seen) -> None:
    async with running_hub(tmp_path, small_app(seen), settings=only(raced=1)) as hub:
        asked = [Start("i", "doubled", input=text, replaceable=frozenset()) for text in ("1", "2")]
        assert await asyncio.gather(*map(hub.tasks.start, asked)) == ["i", "i"]
        with pytest.raises(InstanceExistsError):
            await hub.tasks.start(asked[0])
        instance = await hub.tasks.wait_finished("i")
        assert instance.output == str(4 * int(instance.input or ""))


async def test_whoever_waits_asks_every_two_seconds(tmp_path: Path, seen: Seen) -> None:
    clock = ManualClock()
    async with running_hub(tmp_path, small_app(seen), clock, only()) as hub:
        waiting = asyncio.create_task(hub.tasks.wait_finished("i"))
        await hub.tasks.start(Start("i", "doubled", input="1"))
        await hub.settled()
        clock.advance(timedelta(seconds=1.9))
        await hub.settled()
        assert not waiting.done()
        clock.advance(timedelta(seconds=0.1))
        assert (await waiting).output == "4"


async def test_everything_at_once_ends_well(tmp_path: Path, seen: Seen) -> None:
    settings = HubSettings(azure=AzureTerms(7))
    async with running_hub(tmp_path, small_app(seen), settings=settings) as hub:
        starts = [Start(f"d{number}", "parent", input=str(number)) for number in range(20)]
        starts += [Start(f"s{number}", "sleeper", input="1") for number in range(20)]
        starts += [Start(f"c{number}", "counted", input="1") for number in range(20)]
        await all_ended(hub, starts)
