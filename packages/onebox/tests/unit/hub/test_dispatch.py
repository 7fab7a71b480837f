import asyncio
from contextlib import suppress

import pytest

from onebox.hub.dispatch import Lanes, Timers, WorkQueue
from onebox.hub.model import Lane


def test_a_due_retry_passes_a_backlog_of_first_attempts() -> None:
    lanes: Lanes[str] = Lanes()
    for number in range(1_000):
        lanes.put(f"new-{number}", Lane.NEW)
    lanes.put("retry", Lane.DUE)
    assert lanes.pop() == ("retry", Lane.DUE)


def test_new_work_gets_its_share_whatever_else_waits() -> None:
    lanes: Lanes[Lane] = Lanes()
    for lane in Lane:
        for _ in range(100):
            lanes.put(lane, lane)
    taken = [lanes.pop()[0] for _ in range(80)]
    assert [taken.count(lane) for lane in Lane] == [20, 50, 10]


@pytest.mark.parametrize("starts", [0, 10_000])
def test_results_do_not_pile_up_while_more_timers_are_due_than_can_be_worked_off(starts: int) -> None:
    """A due retry begins an attempt, which has one result; a start may ask an entity before."""
    lanes: Lanes[int] = Lanes()
    for lane, count, results in ((Lane.DUE, 10_000, 1), (Lane.NEW, starts, 2)):
        for _ in range(count):
            lanes.put(results, lane)
    longest = 0
    while len(lanes):
        results, lane = lanes.pop()
        results -= lane is Lane.GOING
        if results:
            lanes.put(results, Lane.GOING)
        longest = max(longest, lanes.count(Lane.GOING))
    assert longest < 10


def test_an_empty_lane_costs_nothing() -> None:
    lanes: Lanes[int] = Lanes()
    for number in range(20):
        lanes.put(number, Lane.NEW)
    assert [lanes.pop()[0] for _ in range(20)] == list(range(20))


class Handler:
    """Records what runs, and holds it until released."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.failures: list[Exception | None] = []
        self.release = asyncio.Event()

    async def __call__(self, key: str, _: Lane) -> None:
        self.started.append(key)
        await self.release.wait()
        if key == "bad":
            raise ValueError(key)

    def done(self, _: str, failure: Exception | None) -> None:
        self.failures.append(failure)


def queue_of(handler: Handler, limit: int = 2) -> WorkQueue[str]:
    queue = WorkQueue[str](limit, handler, done=handler.done)
    queue.open()
    return queue


async def _until_idle(queue: WorkQueue[str]) -> None:
    async with asyncio.timeout(60):
        while not queue.is_idle:  # noqa: ASYNC110 - a queue has no event of its own
            await asyncio.sleep(0)


async def test_runs_no_more_than_its_limit_at_a_time() -> None:
    handler = Handler()
    queue = queue_of(handler)
    for key in "abc":
        queue.put(key, Lane.GOING)
    await asyncio.sleep(0)
    assert handler.started == ["a", "b"]
    handler.release.set()
    await _until_idle(queue)
    assert handler.started == ["a", "b", "c"]


async def test_a_key_put_while_it_runs_runs_once_more() -> None:
    handler = Handler()
    queue = queue_of(handler)
    queue.put("a", Lane.GOING)
    await asyncio.sleep(0)
    for _ in range(3):
        queue.put("a", Lane.GOING)
    handler.release.set()
    await _until_idle(queue)
    assert handler.started == ["a", "a"]


async def test_a_waiting_key_is_not_queued_twice() -> None:
    handler = Handler()
    queue = queue_of(handler, limit=1)
    for key in "abbb":
        queue.put(key, Lane.GOING)
    handler.release.set()
    await _until_idle(queue)
    assert handler.started == ["a", "b"]


async def test_a_failure_is_reported_and_the_rest_goes_on() -> None:
    handler = Handler()
    queue = queue_of(handler, limit=1)
    for key in ("bad", "good"):
        queue.put(key, Lane.GOING)
    handler.release.set()
    await _until_idle(queue)
    assert isinstance(handler.failures[0], ValueError)
    assert handler.failures[1] is None


async def test_closing_cancels_what_does_not_end_in_time() -> None:
    handler = Handler()
    queue = queue_of(handler)
    queue.put("a", Lane.GOING)
    queue.put("b", Lane.GOING)
    queue.put("c", Lane.GOING)
    await asyncio.sleep(0)
    await queue.close(seconds=0.01)
    assert handler.started == ["a", "b"]


async def test_closing_does_not_wait_for_what_ignores_that_it_is_cancelled() -> None:
    released = asyncio.Event()

    async def stubborn(_: str, __: Lane) -> None:
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    queue = WorkQueue[str](1, stubborn, done=lambda _, __: None)
    queue.open()
    queue.put("a", Lane.GOING)
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await queue.close(seconds=0)
    released.set()
    await _until_idle(queue)


async def test_a_key_that_is_held_is_not_run_before_its_release() -> None:
    ran: list[str] = []

    async def handle(key: str, _: Lane) -> None:
        ran.append(key)

    queue = WorkQueue[str](1, handle, done=lambda _key, _error: None)
    queue.open()
    assert queue.hold("a")
    queue.put("a", Lane.GOING)
    queue.put("b", Lane.GOING)
    await asyncio.sleep(0)
    assert ran == ["b"]
    assert not queue.is_idle
    queue.release("a")
    await asyncio.sleep(0)
    assert ran == ["b", "a"]


async def test_a_key_that_waits_or_runs_cannot_be_held() -> None:
    release = asyncio.Event()

    async def handle(_key: str, _: Lane) -> None:
        await release.wait()

    queue = WorkQueue[str](1, handle, done=lambda _key, _error: None)
    assert not queue.hold("early"), "nothing is handed out yet"
    queue.open()
    queue.put("runs", Lane.GOING)
    queue.put("waits", Lane.GOING)
    await asyncio.sleep(0)
    assert not queue.hold("runs")
    assert not queue.hold("waits")
    release.set()
    await queue.close(1)


async def test_work_that_leaks_a_cancellation_is_no_success() -> None:
    failures: list[Exception | None] = []

    async def leak(_: str, __: Lane) -> None:
        raise asyncio.CancelledError

    queue = WorkQueue[str](1, leak, done=lambda _, failure: failures.append(failure))
    queue.open()
    queue.put("one", Lane.NEW)
    await _until_idle(queue)
    assert [str(failure) for failure in failures] == ["the work was cancelled by something that it awaited"]


class Stored:
    """The store's timers, and how often they were read."""

    def __init__(self, rows: list[tuple[int, str]]) -> None:
        self.rows = rows
        self.reads = 0

    def load(self, after_us: int, limit: int) -> list[tuple[int, str]]:
        """Answer as the query does: up to and including all that is due with number `limit + 1`."""
        self.reads += 1
        later = sorted(row for row in self.rows if row[0] > after_us)
        if len(later) <= limit:
            return later
        return [row for row in later if row[0] <= later[limit][0]]


def test_wakes_in_order_of_time() -> None:
    timers = Timers(Stored([(30, "c"), (10, "a"), (20, "b")]).load)
    timers.refill()
    assert timers.next_due_us() == 10
    assert list(timers.pop_due(20)) == ["a", "b"]
    assert timers.next_due_us() == 30


def test_never_wakes_early() -> None:
    timers = Timers(Stored([(10, "a")]).load)
    timers.refill()
    assert list(timers.pop_due(9)) == []


def test_says_when_a_new_timer_is_the_next() -> None:
    timers = Timers(Stored([(20, "b")]).load)
    timers.refill()
    assert timers.add(10, "a")
    assert not timers.add(30, "c")


def test_holds_only_the_nearest_and_reads_on_when_they_are_used_up() -> None:
    stored = Stored([(at, f"t{at}") for at in range(1, 101)])
    timers = Timers(stored.load, limit=10)
    timers.refill()
    assert len(timers._stored) == 11
    assert list(timers.pop_due(100)) == [f"t{at}" for at in range(1, 101)]
    assert stored.reads <= 12


def test_a_timer_beyond_the_horizon_stays_in_the_store() -> None:
    stored = Stored([(at, "near") for at in range(1, 20)])
    timers = Timers(stored.load, limit=5)
    timers.refill()
    stored.rows.append((50, "far"))
    assert not timers.add(50, "far")
    assert list(timers.pop_due(50))[-1] == "far"


def test_timers_of_one_instant_are_not_split() -> None:
    stored = Stored([(7, f"t{number}") for number in range(30)])
    timers = Timers(stored.load, limit=5)
    timers.refill()
    assert len(list(timers.pop_due(7))) == 30


def test_gives_the_far_part_back_when_too_many_are_added() -> None:
    stored = Stored([])
    timers = Timers(stored.load, limit=5)
    timers.refill()
    for at in range(1, 101):
        stored.rows.append((at, f"t{at}"))
        timers.add(at, f"t{at}")
    assert len(timers._stored) <= 21
    assert list(timers.pop_due(100)) == [f"t{at}" for at in range(1, 101)]


def test_many_timers_of_one_instant_are_sorted_seldom() -> None:
    stored = Stored([])
    timers = Timers(stored.load, limit=5)
    timers.refill()
    sorted_at = []
    for number in range(1_000):
        before = timers._trim_above
        stored.rows.append((7, f"t{number}"))
        timers.add(7, f"t{number}")
        if timers._trim_above != before:
            sorted_at.append(number)
    assert len(sorted_at) <= 7
    assert len(list(timers.pop_due(7))) == 1_000


def test_a_retry_is_due_among_the_timers() -> None:
    timers = Timers(Stored([(10, "a"), (30, "c")]).load)
    timers.refill()
    timers.add_retry(20, 7)
    assert list(timers.pop_due(30)) == ["a", 7, "c"]
