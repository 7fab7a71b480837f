"""One simulated world from its beginning to its end, and what is left to be looked at afterwards."""

import asyncio
import gc
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from durable_retry.attempt.http_client import close_clients
from durable_retry.attempt.results import TABLE_PREFIX as RESULTS_TABLE
from durable_retry.attempt.results import remove_results, with_stored
from durable_retry.base.names import (
    CALL_LIMITER,
    IDEMPOTENCY_RECORD,
    OPERATION,
    OperationState,
)
from durable_retry.circuit.cache import close_circuits
from durable_retry.features.circuit_controls.names import RELEASE_WAITING
from durable_retry.features.dead_letter_lists.counts import read_summary
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.dead_letter_lists.rules.numbers import DeadLetterSummary
from durable_retry.features.debounce.names import DEBOUNCE
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.features.order.lanes import LOOKED_AT
from durable_retry.features.order.names import ORDER_LANE
from durable_retry.features.order.rules.lane import lane_of_state
from durable_retry.features.workflows.batch_store import document_of_batch, find_batch
from durable_retry.rules.dead_letters.record import KeptDeadLetter, Status
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.storage import contents
from durable_retry_console.index.store import OperationEntry, OperationList, buckets
from tests.simulation import virtual_loop
from tests.simulation.alerts import AlertWatch
from tests.simulation.app import App
from tests.simulation.chances import CALM, Chances, Scale
from tests.simulation.circuits import CircuitWatch
from tests.simulation.debounces import DebounceWatch
from tests.simulation.entities import Operated
from tests.simulation.lanes import LaneWatch
from tests.simulation.messages import Instance
from tests.simulation.people import People
from tests.simulation.slots import SlotWatch
from tests.simulation.upkeep import Upkeep
from tests.simulation.world import World

WORKERS: Final = 3
_MENDINGS: Final = 3
_SETTLED_SECONDS: Final = 600.0
"""By then most ends have been noted: a dead worker hides its messages for minutes."""
CALM_SECONDS: Final = 4 * 3_600.0
"""By then everything that was accepted has ended: deadlines are an hour."""

_RARE: Final = 0.15
"""How many small worlds have a batch, a saga, a malformed message."""

_RESULTS_KEPT: Final = timedelta(days=3)
"""Histories are kept for a day then, as long as records live, and results two days longer."""

_NIGHT_SECONDS: Final = 57_600.0
"""After that it is the next day, and all records live."""

RECORD_SECONDS: Final = 90_000.0
"""A record lives for a day, unless the dependency says otherwise."""


@dataclass
class RunEnd:
    """The end of one run of an operation.

    Attributes:
        started_at: By the true time, as `ended_at`.
        ended_at: When the messages of its last turn first went out.
        is_repeated: Whether a turn of it was made again after its messages had gone out.
    """

    operation: OperationInput
    document: dict[str, Any]
    started_at: datetime
    ended_at: datetime
    life: int
    is_repeated: bool

    @property
    def succeeded(self) -> bool:
        return bool(self.document["status"] == "succeeded")


@dataclass
class Story:
    """What came of a world; what the invariants are about.

    Attributes:
        ends: Of the runs of operations, in order.
        letters: All dead letters.
        open_ids: Those that the list of open ones shows.
        summary: What the counts say.
        batches: Documents of all batches.
        records: What was known of each key when a life was over, by the operation's id and the life.
        outliving: Operations whose record is there after its time.
        circuits: What was seen of circuits.
        slots: What was seen of limiters.
        alerts: What the alerts said.
        is_watched: Whether alerts are checked in this world.
        noted: By operation, what the index has of it.
        listed: By operation, its state in the list of what failed, for those that it has.
        lost_results: Operations whose result was stored apart, and is not there.
        left_results: Tables of results that are left when the time of all is over.
        lanes: What was seen of order lanes.
        left_in_lanes: Who is near the front of a lane at rest, and has no open dead letter.
        slots_left: Slots that are lent when the world is at rest.
        debounces: What was seen of the entities of debounce keys.
        debounced_left: Entities of debounce keys that are there when the time of every record is over.
    """

    world: World
    app: App
    people: People
    ends: list[RunEnd] = field(default_factory=list)
    letters: list[KeptDeadLetter] = field(default_factory=list)
    open_ids: list[str] = field(default_factory=list)
    summary: DeadLetterSummary | None = None
    batches: list[dict[str, Any]] = field(default_factory=list)
    records: dict[tuple[str, int], dict[str, Any] | None] = field(default_factory=dict)
    outliving: list[str] = field(default_factory=list)
    noted: dict[str, OperationEntry] = field(default_factory=dict)
    slots_left: list[str] = field(default_factory=list)
    debounces: DebounceWatch = field(default_factory=DebounceWatch)
    debounced_left: list[str] = field(default_factory=list)
    listed: dict[str, OperationState | None] = field(default_factory=dict)
    lost_results: list[str] = field(default_factory=list)
    left_results: list[str] = field(default_factory=list)
    circuits: CircuitWatch = field(init=False)
    slots: SlotWatch = field(init=False)
    lanes: LaneWatch = field(init=False)
    left_in_lanes: list[str] = field(default_factory=list)
    alerts: AlertWatch = field(init=False)
    upkeep: Upkeep = field(init=False)
    is_watched: bool = field(init=False)

    def __post_init__(self) -> None:
        self.circuits, self.slots = CircuitWatch(self.world), SlotWatch(self.world)
        self.lanes = LaneWatch(self.world)
        hub = self.app.hub
        hub.on_end, hub.on_entity, hub.on_signal = self.ended, self.changed, self.slots.signaled
        hub.on_event = self.circuits.told
        self.alerts = AlertWatch(self.world, self.app.tables)
        self.upkeep = Upkeep(self.people)
        self.is_watched = self.world.chances.watched > 0

    @property
    def first_ends(self) -> dict[str, RunEnd]:
        """The end of the first run of each operation, by its id."""
        firsts = [end for end in self.ends if end.operation.replay_of is None]
        return {end.operation.operation_id: end for end in reversed(firsts)}

    @property
    def last_ends(self) -> list[RunEnd]:
        """The end of the last run of each operation, in each life."""
        return list({(end.operation.operation_id, end.life): end for end in self.ends}.values())

    def changed(self, operated: Operated) -> None:
        self.circuits.changed(operated)
        self.slots.changed(operated)
        self.lanes.changed(operated)
        self.debounces.changed(operated)
        self.alerts.changed(operated)

    def ended(self, instance: Instance) -> None:
        """Take the end of an instance down."""
        if instance.name == RELEASE_WAITING:
            self.circuits.released(instance, self.app.hub.instances.values())
        if instance.name == OPERATION and instance.output is not None:
            operation = OperationInput.from_json(json.loads(instance.input)["operation"])
            document = json.loads(instance.output)
            # A start that is repeated after its run has ended makes no run: it gets that run's document.
            ended = (end for end in self.ends if end.operation.run_id == operation.run_id)
            if not any(end.document == document for end in ended):
                now = instance.said_to_end_at or self.world.now()
                life = self.world.life_at(operation.created_at)
                self.ends.append(
                    RunEnd(operation, document, instance.created_at, now, life, instance.is_repeated)
                )

    async def look(self) -> None:
        """Read what the app itself says in the end."""
        rows = self.app.tables.rows("DeadLetters")
        self.letters = [
            KeptDeadLetter.from_json_text(contents.unpacked("document", row))
            for row in rows
            if row["RowKey"] == "record"  # the others are events
        ]
        self.open_ids, self.batches, cursor = [], [], None
        while True:
            page = await list_dead_letters(DeadLetterFilter(status=Status.OPEN), limit=200, cursor=cursor)
            self.open_ids += [record.id for record in page.records]
            cursor = page.cursor
            if cursor is None:
                break
        self.summary = await read_summary(self.world.now())
        for batch_id in sorted(self.people.batches):
            batch = await find_batch(batch_id)
            assert batch is not None, batch_id
            self.batches.append((await document_of_batch(batch)).to_json())
        for name, state in self._states(CALL_LIMITER).items():
            limiter, _ = Limiter.from_json(state or {}).at(self.world.now())
            self.slots_left += [f"{name} has lent {each}" for each in self.slots.lent_at(limiter)]
        for name, state in self._states(ORDER_LANE).items():
            lane = lane_of_state(name, state)
            # Nobody looks further along a lane before those in front are gone.
            letters = {
                place.operation_id: lane.dead_letters.get(place.operation_id)
                for place in islice(lane.places(), LOOKED_AT)
            }
            self.left_in_lanes += [
                f"{operation_id} is left in the lane {lane.order_key}"
                for operation_id, letter_id in letters.items()
                if letter_id not in self.open_ids
            ]
        entries = [entry async for _, _, found in buckets([OperationList.ALL], None) for entry in found]
        self.noted = {entry.operation_id: entry for entry in reversed(entries)}
        failed = [entry async for _, _, found in buckets([OperationList.FAILED], None) for entry in found]
        self.listed = {entry.operation_id: entry.status for entry in reversed(failed)}
        life = len(self.world.lives)
        self.records |= {
            (name, life): state for name, state in self._states(IDEMPOTENCY_RECORD).items() if state
        }
        for each in self.app.hub.instances.values():
            if each.name == OPERATION and not each.is_running:
                run = json.loads(each.input)["operation"]["run"]
                known = self.records.get((each.instance_id, life))
                if known is None or known["run"] < run:
                    # Its completion was lost. While the history is kept, that answers.
                    self.records[each.instance_id, life] = {
                        "run": run,
                        "document": json.loads(each.output or "null"),
                    }

    async def _look_for_results(self) -> None:
        """See that what is stored apart is there as long as a record names it."""
        for name, state in self._states(IDEMPOTENCY_RECORD).items():
            result = ((state or {}).get("document") or {}).get("result")
            if isinstance(result, dict) and {"expired", "unreadable"} & (await with_stored(result)).keys():
                self.lost_results.append(name)

    async def look_again(self) -> None:
        """See what is left when the time of every record is over."""
        await asyncio.sleep(_NIGHT_SECONDS)
        await remove_results(self.world.now(), timedelta(days=1))
        await self._look_for_results()
        await asyncio.sleep(RECORD_SECONDS - _NIGHT_SECONDS)
        for _ in range(2):  # Retention completes what is in progress still, and its next round removes it.
            await self.upkeep.retain(self.world.now())
            await asyncio.sleep(60)  # For a hub that purges no entity, and clocks that differ.
        self.outliving += [name for name, state in self._states(IDEMPOTENCY_RECORD).items() if state]
        self.debounced_left += [name for name, state in self._states(DEBOUNCE).items() if state]
        await remove_results(self.world.now() + _RESULTS_KEPT, timedelta(days=1))
        self.left_results += [
            name
            for name in list(self.app.tables.tables)
            if name.startswith(RESULTS_TABLE) and self.app.tables.rows(name)
        ]

    def _states(self, kind: str) -> dict[str, dict[str, Any] | None]:
        """Return the states of the entities of a kind, by their keys."""
        prefix = f"@{kind}@"
        states = self.app.hub.states.items()
        return {name.removeprefix(prefix): state for name, state in states if name.startswith(prefix)}


def simulated(
    seed: int, operations: int, *defects: Any, without: Collection[str] = (), losing: bool = False
) -> Story:
    """Let a world happen.

    Args:
        seed: Everything in it follows from this and the number of operations.
        operations: How many are submitted one by one; batches and sagas come on top.
        defects: Patches that break the app.
        without: Names of `Chances` that are none.
        losing: Whether messages are lost, for good.
    """
    chances = (Chances.losing if losing else Chances.of)(seed, without)
    with collector_at_rest() if Scale.of(operations).is_small else nullcontext():
        return virtual_loop.run(_happened(World(seed, chances, Scale.of(operations)), defects))


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Let nothing be collected: a small world leaves little, and the collector takes a tenth of its time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _happened(world: World, defects: Sequence[Any]) -> Story:
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: _unheard(world, context))
    app = App(world)
    story = Story(world, app, People(world, app))
    with app.in_place(*story.alerts.settings(), *defects):
        for _ in range(WORKERS):
            world.give_birth()
        chances, world.chances = world.chances, CALM
        try:
            await _live(story, _crowd, chances)
            if world.happens(chances.again):
                await story.people.archive_everything()
                await _live(story, _second_crowd, chances)
        finally:
            await world.end()
            close_circuits()
            await close_clients()
    return story


async def _live(story: Story, crowd: Callable[[People, Scale], list[Any]], chances: Chances) -> None:
    """Let a storm begin and pass, and wait until everything has come to rest and every record has expired."""
    world = story.world
    world.chances = chances
    world.begin_life()
    for target in story.app.targets.values():
        target.begin_storm()
    await story.upkeep.retain(world.now())
    timers = [asyncio.create_task(story.upkeep.janitor())]
    if story.is_watched:
        timers.append(asyncio.create_task(story.alerts.check_often(story.people)))
    await asyncio.gather(*crowd(story.people, world.scale))
    await asyncio.sleep(max(0.0, world.storm_ends - world.seconds))
    world.chances = CALM
    await story.people.resume_everything()
    await story.people.restart_everything()
    # Replays wait for circuits that are held open, by hand or with all others.
    held = [story.people.close_what_is_held()]
    held += [story.people.thaw_everything()] if chances.freezing else []
    await asyncio.gather(story.people.replay_everything(), *held)
    await _quiet(story)
    for timer in timers:
        if not timer.cancel():
            timer.result()  # Nothing but an error ends it.
    await asyncio.sleep(_SETTLED_SECONDS)
    await story.upkeep.look_at_lanes()
    for _ in range(_MENDINGS):
        await story.upkeep.mend_index()
        await asyncio.sleep(60)  # Until its signals have come, and its notes are written.
    await story.look()
    if story.is_watched:
        await story.alerts.check_at_rest(story.people, len(story.open_ids))
    await story.look_again()


def _unheard(world: World, context: dict[str, Any]) -> None:
    """Take down what was raised where nobody hears it."""
    if not world.over:
        world.mistake("nobody expected", repr(context.get("exception")), context.get("message"))


def _crowd(people: People, scale: Scale) -> list[Any]:
    """Return everybody; in a small world each kind of what is rare comes now and then."""

    def some(one_in: int) -> range:
        if scale.is_small:
            return range(people.world.rng.random() < _RARE)
        return range(scale.operations // one_in)

    return [
        *(people.caller(number) for number in range(scale.operations)),
        *(people.malformed_message(number) for number in some(50)),
        *(people.batch(1 + number) for number in some(100)),
        *(people.saga(number) for number in some(50)),
        *(people.regular(number) for number in range(people.world.chances.calling > 0)),
        people.operator(),
        people.electrician(),
        *([people.freezer()] if people.world.chances.freezing else []),
    ]


def _second_crowd(people: People, scale: Scale) -> list[Any]:
    """Return the callers of the first life, who use their keys for something else now."""
    return [*(people.caller(number) for number in range(scale.operations)), people.operator()]


async def _quiet(story: Story) -> None:
    """Wait until nothing happens any more, or for so long that it never will."""
    hub, until = story.app.hub, story.world.seconds + CALM_SECONDS
    calm_looks = 0
    while story.world.seconds < until and calm_looks < story.world.scale.calm_looks:
        await asyncio.sleep(60)
        busy = hub.under_way or any(each.is_running for each in hub.instances.values())
        calm_looks = 0 if busy else calm_looks + 1
