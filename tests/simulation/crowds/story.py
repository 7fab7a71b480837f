"""A crowd from its first post until nothing is left of it, and some newcomers after that."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final
from unittest.mock import patch

from durable_retry.attempt.http_client import close_clients
from durable_retry.base.json_forms import to_ms
from durable_retry.base.names import ACQUIRE, FREEZE, OperationState, Priority
from durable_retry.circuit.cache import close_circuits
from durable_retry.features.handlers import registry
from durable_retry.features.limits.store import read_limiter
from durable_retry.handlers import Call as HandlerCall
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.config.dependencies_file import Config
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from durable_retry.upkeep.failures import recover
from tests.simulation import virtual_loop
from tests.simulation.app import App, Order, posted
from tests.simulation.chances import CALM, Scale
from tests.simulation.circuits import CircuitWatch
from tests.simulation.crowds.crowd import NEIGHBOUR, OF_HANDLER, SAFE, SHOWS_WITHIN, Crowd, Trouble
from tests.simulation.entities import Operated
from tests.simulation.people import People
from tests.simulation.story import collector_at_rest
from tests.simulation.targets import REJECTED, Mood
from tests.simulation.upkeep import tidied
from tests.simulation.world import START, Worker, World, acting

MOST: Final = 50
"""Operations of a crowd, where no more are asked for."""
LARGE: Final = 600

_NEIGHBOURS: Final = 5
_NEWCOMERS: Final = 8
_TOGETHER_SECONDS: Final = 20.0
_STOPPED_SECONDS: Final = 18.0
_REMOVED_SECONDS: Final = 90.0
_LIMITED_SECONDS: Final = 20.0
_HELD_SECONDS: Final = 30.0
_FROZEN_SECONDS: Final = 30.0
_SICK_SECONDS: Final = 20.0
_LONG_SICK_SECONDS: Final = 60.0
"""Where the circuit has to open, so long that many would call meanwhile if it did not."""
_RECOVERS_SECONDS: Final = 10.0
_SHORTER_SECONDS: Final = 10.0
"""What a deploy makes of `attempt_seconds`."""
_PATIENCE_SECONDS: Final = 3_600.0
"""By then everything that was accepted has ended."""
_FORCED_SECONDS: Final = 180.0
"""So long may upkeep take to see what was terminated, and the slots last that dead workers' steps had."""
_FLOODS: Final = 8
_FLOODED_FIRST: Final = 6
_FLOOD_SECONDS: Final = 20.0
"""How long a call of the neighbours takes, and the time between two waves of them."""
_TRIED: Final = 5
_REPLAYED_PER_SECOND: Final = (1, 5)
_SOON_MS: Final = 12_000
_DEBOUNCE_SECONDS: Final = 5.0
_ACCEPTED: Final = 202
_SELL: Final = "sell"
_MANY: Final = "many"
"""What the keys of the crowd begin with."""
_EVERY: Final = 5
"""Where there are deadlines one of so many has one: of each priority, and of each of a few limit keys."""


type Span = tuple[datetime, datetime]


@dataclass(frozen=True)
class Wave:
    """Operations that were posted at once, by their ids, and when they could begin."""

    ids: tuple[str, ...]
    due_at: datetime


@dataclass
class CrowdStory:
    """What came of a crowd.

    Attributes:
        shape: What the crowd is.
        crowd: The operations that wait; `neighbours` came with them, `newcomers` when they had ended.
        taken: Operations that somebody cancelled or terminated.
        tried: Operations of which somebody sent an attempt past the circuit, and with it past the limits.
        limits_left: What the API says of the limits when the crowd had ended, and when the newcomers had,
            of each dependency that has some.
        unfinished: Operations that had not ended when patience had.
        documents: Of the operations that ended by themselves, by their ids.
        unlimited: From when until when the dependency had no limits; None without such a time.
        circuits: When each circuit was open.
        lent: To which operations the limiter has lent a slot, and when it did so last.
        held_at: When the circuit of each dependency had that everything is held; empty without such a time.
        thawed_at: When everything was let go; before that nothing was.
        sick: From when until when the dependency was in trouble; None without such a time.
        renamed_at: Since when all workers have its new name; None where it has none.
        paused: From when until when operations showed that they were paused, while nobody resumed them.
        replay_id: Of the bulk action that replays what was refused; empty without one.
        replayed: What that shows when all have ended.
        late_answers: What those were answered with who came while the circuit was held open, and refuses.
        config: The dependencies of workers that come up; `configs` are those that each came up with.
    """

    shape: Crowd
    world: World
    app: App
    people: People
    circuits: CircuitWatch = field(init=False)
    crowd: Wave = field(init=False)
    neighbours: Wave = field(init=False)
    newcomers: Wave = field(init=False)
    taken: set[str] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)
    limits_left: list[dict[str, Any]] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    late_answers: list[int] = field(default_factory=list)
    config: Config = field(init=False)
    configs: dict[str, Config] = field(default_factory=dict)
    unlimited: Span | None = None
    lent: dict[str, datetime] = field(default_factory=dict)
    held_at: dict[str, datetime] = field(default_factory=dict)
    thawed_at: datetime = START
    sick: Span | None = None
    renamed_at: datetime | None = None
    paused: dict[str, Span] = field(default_factory=dict)
    replay_id: str = ""
    replayed: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.config = self.shape.config()
        self.circuits = CircuitWatch(self.world)
        self.newcomers = Wave((), self.world.now())
        self.world.on_birth.append(self._introduce)
        self.app.hub.on_entity = self._note

    def _note(self, operated: Operated) -> None:
        self.circuits.changed(operated)
        if operated.operation == FREEZE:
            self.held_at.setdefault(operated.key, self.world.now())
        if operated.operation == ACQUIRE and (lease_id := operated.answer.get("lease_id")):
            self.lent[lease_id.partition(".")[0]] = self.world.now()

    def _introduce(self, worker: Worker) -> None:
        self.configs[worker.name] = self.config

    @property
    def documents(self) -> dict[str, dict[str, Any]]:
        ended = (each for each in self.app.hub.instances.values() if not each.is_running)
        outputs = ((each.instance_id, json.loads(each.output or "null")) for each in ended)
        return {name: output for name, output in outputs if isinstance(output, dict)}

    @property
    def rejected(self) -> set[str]:
        """Return those whose request the dependency has refused for good."""
        calls = self.app.targets[self.shape.limited].calls
        return {call.operation.operation_id for call in calls if call.status == REJECTED}

    def has_deadline(self, operation_id: str) -> bool:
        """Whether an operation of the crowd may be too late."""
        return (
            not self.shape.is_debounced
            and self.shape.deadline_part > 0
            and operation_id in self.crowd.ids[::_EVERY]
        )

    async def happen(self) -> None:
        """Let everything happen."""
        watches = [asyncio.create_task(watch) for watch in (self._watch(), self._resume_held())]
        delay_seconds = _TOGETHER_SECONDS if self.shape.together else 0.0
        post = self._post_series if self.shape.is_debounced else self._post
        self.crowd = await post(self.shape.dependency, _MANY, self.shape.operations, delay_seconds)
        self.neighbours = await self._post(NEIGHBOUR, "near", _NEIGHBOURS, delay_seconds)
        if self.shape.has_flood:
            await asyncio.gather(self._flood(), self._disturb())
        else:
            await self._disturb()
        await self._end()
        if self.replay_id:
            _, self.replayed = await self.people.call("show many", action_id=self.replay_id)
        if not self.unfinished:
            if self.shape.trouble is Trouble.DEPLOYED:
                await self._replace_workers(self.shape.config())
            self.newcomers = await self._post(self.shape.dependency, "new", _NEWCOMERS)
            await self._end()
        for watch in watches:
            watch.cancel()

    async def _end(self) -> None:
        """Wait until all have ended and what they had is given back, and look at the limits."""
        until = self.world.seconds + _PATIENCE_SECONDS
        while self._running() and self.world.seconds < until:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1)
        self.unfinished = self._running()
        is_forced = self.shape.is_restarted or self.shape.trouble is Trouble.TERMINATED
        await asyncio.sleep(_FORCED_SECONDS if is_forced else self.shape.late_seconds)
        first = self.shape.limited if self.renamed_at is None else self.shape.renamed
        for dependency in (first, *self.shape.limiters[1:]):
            _, circuit = await self.people.call("circuit", dependency=dependency)
            self.limits_left.append(circuit["limits"])

    def _running(self) -> list[str]:
        return [each.instance_id for each in self.app.hub.instances.values() if each.is_running]

    async def _flood(self) -> None:
        """Fill the queue for two minutes, and keep it as long for some more."""
        places = self.shape.workers * self.shape.places
        for number in range(_FLOODS):
            count = places * (_FLOODED_FIRST if number == 0 else 1)
            await self._post(NEIGHBOUR, f"flood-{number}", count)
            await asyncio.sleep(_FLOOD_SECONDS)

    async def _post(self, dependency: str, name: str, count: int, delay_seconds: float = 0.0) -> Wave:
        more = {"delay_seconds": delay_seconds} if delay_seconds else {}
        bodies = [self._body_of(dependency, name, number) | more for number in range(count)]
        if self.shape.deadline_part and name == _MANY:
            for body in bodies[::_EVERY]:
                body["deadline_seconds"] = delay_seconds + self.shape.deadline_seconds
        return await self._post_all(bodies, delay_seconds)

    async def _post_series(self, dependency: str, name: str, count: int, delay_seconds: float) -> Wave:
        """Post operations in pairs, of which the later one replaces the other."""
        seconds = delay_seconds or _DEBOUNCE_SECONDS
        bodies = [
            self._body_of(dependency, name, number)
            | {"debounce_key": f"{name}-{number // 2}", "debounce_seconds": seconds}
            for number in range(count)
        ]
        return await self._post_all(bodies, seconds)

    async def _post_all(self, bodies: list[dict[str, Any]], seconds: float) -> Wave:
        """Post what is due after so long."""
        due_at = self.world.now() + timedelta(seconds=seconds)
        answers = await asyncio.gather(*(self.people.call("submit", body) for body in bodies))
        assert {status for status, _ in answers} == {_ACCEPTED}, answers
        return Wave(tuple(answer["operation_id"] for _, answer in answers), due_at)

    def _body_of(self, dependency: str, name: str, number: int) -> dict[str, Any]:
        key = {"key": f"{name}-{number}"}
        if self.shape.keys and dependency != NEIGHBOUR:
            key["limit_key"] = f"customer-{number % self.shape.keys}"
        if self.shape.has_priorities and name == _MANY:
            # Each limit key has as many of each priority.
            key["priority"] = tuple(Priority)[(number + number // len(Priority)) % len(Priority)]
        if self.shape.lanes and name == _MANY:
            key |= {"order_key": f"lane-{number % self.shape.lanes}", "order_on_failure": "skip"}
        if dependency == OF_HANDLER:
            return {"handler": _SELL, "input": {"number": number, "life": 1}, **key}
        request: dict[str, Any] = {"method": "POST", "path": f"/{number}"}
        if self.shape.is_asked and dependency == self.shape.limited:
            request["json"] = {"life": 1}
        return {"dependency": dependency, "request": request, **key}

    async def _watch(self) -> None:
        """Look each minute for what stands still, as the app's timer does."""
        while True:
            await asyncio.sleep(60)
            await self.people.on_some_worker(
                lambda worker: tidied(recover(TaskHub(worker.name), clock.now()))
            )

    async def _resume_held(self) -> None:
        """Resume what was held for want of time, again and again; what is not held refuses that."""
        while self.shape.is_held:
            await asyncio.sleep(_HELD_SECONDS)
            late = {name for name in self.crowd.ids if self.has_deadline(name)}
            running = late & {*self._running()}
            await self._for_each(running, lambda name: self.people.call("resume", operation_id=name))

    # Troubles.

    async def _disturb(self) -> None:
        if self.shape.trouble in _DISTURB:
            begins = self.world.rng.uniform(0.02, 0.25) * self.shape.drained_seconds
            due_seconds = (self.crowd.due_at - self.world.now()).total_seconds()
            await asyncio.sleep(max(0.0, due_seconds + begins))
            self.world.note("trouble", self.shape.trouble)
            await _DISTURB[self.shape.trouble](self)

    async def _restart(self) -> None:
        await self.world.restart(_STOPPED_SECONDS)

    async def _restart_again(self) -> None:
        await self._restart()
        await asyncio.sleep(self.world.rng.uniform(0, _RECOVERS_SECONDS))
        await self._restart()

    async def _cancel(self) -> None:
        names = self._some()
        self.taken |= names
        await self._for_each(names, lambda name: self.people.call("cancel", operation_id=name))

    async def _reject_and_replay(self) -> None:
        await self._turn(Mood.REJECTING, _SICK_SECONDS)
        rate, probe = self.world.rng.choice(_REPLAYED_PER_SECOND), self.world.rng.random() < 0.5
        self.replay_id = await self._act_on_many("replay", filter={}, rate_per_second=rate, probe=probe)
        await self.people.see_through(self.replay_id)

    async def _terminate(self) -> None:
        next_ones = set() if self.world.rng.random() < 0.5 else await self._next_ones()
        self.taken |= (names := next_ones or self._some())
        for name in sorted(names):
            self.app.hub.terminate(name)

    async def _next_ones(self) -> set[str]:
        """Return those that will be told of a free slot, or ask soon by themselves."""
        limiter = await self.people.on_some_worker(
            lambda worker: read_limiter(TaskHub(worker.name), self.shape.limited)
        )
        soon_ms = to_ms(self.world.now()) + _SOON_MS
        places = () if limiter is None else limiter.places
        return {each.waiter for each in places if each.waiter and (each.is_called or each.asks_ms <= soon_ms)}

    async def _pause(self) -> None:
        names = self._some()
        by_many = self.world.rng.random() < 0.5
        if by_many:
            await self._act_on_many("pause", ids=sorted(names), rate_per_second=100)
        else:
            await self._for_each(names, lambda name: self.people.call("pause", {}, operation_id=name))
        await asyncio.sleep(self.world.rng.uniform(10, 30))
        await self._for_each(names, self._look)
        await asyncio.sleep(self.world.rng.uniform(1, 20))
        self.paused = {name: (since, self.world.now()) for name, (since, _) in self.paused.items()}
        if by_many:
            await self._act_on_many("resume", filter={"status": "paused"}, rate_per_second=100)
        await self._for_each(names, self._resume)

    async def _look(self, name: str) -> None:
        """Note an operation that shows that it is paused; what the policy holds is resumed by others."""
        _, shown = await self.people.call("show", operation_id=name)
        if shown["status"] == OperationState.PAUSED and not self.shape.is_held:
            self.paused[name] = (self.world.now(), self.world.now())

    async def _act_on_many(self, action: str, **more: Any) -> str:
        _, started = await self.people.call("act on many", {"action": action, **more})
        action_id: str = started["action_id"]
        return action_id

    async def _resume(self, name: str) -> None:
        """Resume an operation, again and again while its pause waits for the attempt that is under way."""
        while self.app.hub.instances[name].is_running:
            status, _ = await self.people.call("resume", operation_id=name)
            if status == _ACCEPTED:
                return
            await asyncio.sleep(5)

    async def _hurry(self) -> None:
        names = {name for name in self.crowd.ids if self.app.hub.instances[name].is_running}
        await self._for_each(names, lambda name: self.people.call("hurry", operation_id=name))

    async def _limit(self) -> None:
        await self._replace_workers(self.shape.config(part=0.5))
        await asyncio.sleep(_LIMITED_SECONDS)
        await self._replace_workers(self.shape.config())

    async def _free(self) -> None:
        begun_at = self.world.now()
        await self._replace_workers(self.shape.config(part=0.0))
        await asyncio.sleep(_LIMITED_SECONDS)
        await self._replace_workers(self.shape.config())
        self.unlimited = (begun_at, self.world.now())

    async def _freeze(self) -> None:
        await self.people.call("hold", {"reason": "a drill"})
        await asyncio.sleep(_FROZEN_SECONDS)
        self.thawed_at = self.world.now()
        await self.people.call("thaw", {"waves": [0.3, 1.0], "wave_seconds": 10.0})

    async def _hold(self) -> None:
        if self.world.rng.random() < 0.5:
            await self._throttle()
        dependency, reason = self.shape.limited, {"reason": "maintenance"}
        await self.people.call("open", reason, dependency=dependency)
        await asyncio.sleep(20)
        if self.shape.refuses:
            bodies = [self._body_of(dependency, "late", number) for number in range(_NEIGHBOURS)]
            answers = await asyncio.gather(*(self.people.try_call("submit", body) for body in bodies))
            self.late_answers = [answer[0] for answer in answers if answer is not None]
        self.tried |= (names := set(sorted(self._some())[:_TRIED]))
        await self._for_each(names, lambda name: self.people.call("try", reason, operation_id=name))
        await asyncio.sleep(20)
        await self.people.call("close", reason, dependency=dependency)

    async def _throttle(self) -> None:
        await self._turn(Mood.THROTTLING, 2)

    async def _break(self) -> None:
        await self._turn(Mood.REFUSING, 30)

    async def _revoke(self) -> None:
        await self._turn(Mood.REVOKED, _LONG_SICK_SECONDS)

    async def _slow_down(self) -> None:
        await self._turn(Mood.SLOW, _LONG_SICK_SECONDS)

    async def _stall(self) -> None:
        await self._turn(Mood.STALLING, _SICK_SECONDS)

    async def _lose_answers(self) -> None:
        await self._turn(self.world.rng.choice([Mood.ERRING, Mood.HANGING]), _SICK_SECONDS)

    async def _say_so(self) -> None:
        await self._turn(Mood.WORDED, _SICK_SECONDS)

    async def _turn(self, mood: Mood, seconds: float) -> None:
        target = self.app.targets[self.shape.limited]
        begun_at = self.world.now()
        target.phases.append((self.world.seconds, mood))
        await asyncio.sleep(seconds)
        target.phases.append((self.world.seconds, _usual_mood(self.shape)))
        self.sick = (begun_at, self.world.now())

    async def _rename(self) -> None:
        """Give the dependency another name; what calls it under the earlier one had its limits there."""
        begun_at = self.world.now()
        await self._replace_workers(self.shape.config(is_renamed=True))
        self.renamed_at = self.world.now()
        last = timedelta(seconds=self.shape.place_seconds)
        self.unlimited = (begun_at, self.renamed_at + last)

    async def _deploy(self) -> None:
        await self._replace_workers(self.shape.config(attempt_seconds=_SHORTER_SECONDS))

    async def _remove(self) -> None:
        before = self.config
        await self._replace_workers(self.shape.config(without=self.shape.limited))
        await asyncio.sleep(_REMOVED_SECONDS)
        await self._replace_workers(before)

    async def _replace_workers(self, config: Config) -> None:
        self.config = config
        for worker in tuple(self.world.workers):
            self.world.replace(worker)
            await asyncio.sleep(1)

    def _some(self) -> set[str]:
        """Draw some of the crowd that have not ended."""
        names = [name for name in self.crowd.ids if self.app.hub.instances[name].is_running]
        return set(self.world.rng.sample(names, int(len(names) * self.shape.part)))

    async def _for_each(self, names: set[str], call: Callable[[str], Awaitable[Any]]) -> None:
        await asyncio.gather(*(call(name) for name in sorted(names)))


_DISTURB: Final[dict[Trouble, Callable[[CrowdStory], Awaitable[None]]]] = {
    Trouble.CANCELLED: CrowdStory._cancel,
    Trouble.RESTARTED: CrowdStory._restart,
    Trouble.THROTTLED: CrowdStory._throttle,
    Trouble.TERMINATED: CrowdStory._terminate,
    Trouble.DEPLOYED: CrowdStory._deploy,
    Trouble.BROKEN: CrowdStory._break,
    Trouble.PAUSED: CrowdStory._pause,
    Trouble.HURRIED: CrowdStory._hurry,
    Trouble.REMOVED: CrowdStory._remove,
    Trouble.HELD: CrowdStory._hold,
    Trouble.LIMITED: CrowdStory._limit,
    Trouble.FREED: CrowdStory._free,
    Trouble.FROZEN: CrowdStory._freeze,
    Trouble.REPLAYED: CrowdStory._reject_and_replay,
    Trouble.RESTARTED_AGAIN: CrowdStory._restart_again,
    Trouble.REVOKED: CrowdStory._revoke,
    Trouble.SLOWED: CrowdStory._slow_down,
    Trouble.STALLED: CrowdStory._stall,
    Trouble.UNHEARD: CrowdStory._lose_answers,
    Trouble.WORDED: CrowdStory._say_so,
    Trouble.RENAMED: CrowdStory._rename,
}


@dataclass
class _ConfigOfWorker:
    """The dependencies of the acting worker."""

    story: CrowdStory

    def __getattr__(self, name: str) -> Any:
        worker = acting.get()
        return getattr(self.story.config if worker is None else self.story.configs[worker.name], name)


async def _sell(order: Order, call: HandlerCall) -> int:
    """A handler that posts what is sent once only, and then takes a step elsewhere."""
    await posted(f"/pay/{order.number}", call)
    return await call.step("mail", _mail, dependency=SAFE)


async def _sell_in_steps(order: Order, call: HandlerCall) -> int:
    """The same, which remembers what it has posted."""
    await call.step("pay", posted, f"/pay/{order.number}", call)
    return await call.step("mail", _mail, dependency=SAFE)


async def _mail(call: HandlerCall) -> int:
    return await posted("/mail", call)


def _usual_mood(shape: Crowd) -> Mood:
    return Mood.FAILING_FIRST if shape.ratio else Mood.WELL


def crowd_story(seed: int, most: int = MOST, *defects: Any) -> CrowdStory:
    """Let a crowd happen.

    Args:
        seed: Everything follows from this and the next.
        most: The most operations of the crowd.
        defects: Patches that break the app.
    """
    with collector_at_rest():
        return virtual_loop.run(_happened(seed, Crowd.of(seed, most), defects))


async def _happened(seed: int, shape: Crowd, defects: tuple[Any, ...]) -> CrowdStory:
    scale = replace(Scale.of(1), operations=shape.operations, is_quick=shape.is_quick)
    chances = replace(CALM, failed=0.5, early=0.0 if shape.is_quick else 0.1)
    world = World(seed, chances, scale)
    app = App(world)
    story = CrowdStory(shape, world, app, People(world, app))
    app.hub.places = shape.places
    for target in app.targets.values():
        target.phases.append((0.0, Mood.WELL))
    app.targets[shape.limited].phases.append((0.0, _usual_mood(shape)))
    for dependency in shape.limiters:
        app.targets[dependency].call_seconds = shape.call_seconds
    app.targets[shape.limited].is_polled = shape.is_polled
    app.targets[shape.limited].shows_within = SHOWS_WITHIN * shape.is_asked
    if shape.has_flood:
        app.targets[NEIGHBOUR].call_seconds = (0.8 * _FLOOD_SECONDS, 1.2 * _FLOOD_SECONDS)
    function = _sell_in_steps if shape.in_steps else _sell
    handler = registry.Handler(name=_SELL, dependency=OF_HANDLER, function=function)
    config: Any = _ConfigOfWorker(story)
    of_crowd = (
        using(config),
        patch.dict(registry._handlers, {_SELL: handler}),
    )
    with app.in_place(*of_crowd, *defects):
        for _ in range(shape.workers):
            world.give_birth()
        try:
            await story.happen()
        finally:
            await world.end()
            close_circuits()
            await close_clients()
    return story
