"""One simulated world from its beginning to its end, and what is left to be looked at afterwards."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from durable_retry.engine.base.names import IDEMPOTENCY_RECORD, OPERATION
from durable_retry.engine.circuit import breaker_from_json
from durable_retry.engine.dead_letters.record import DeadLetterRecord, Status
from durable_retry.engine.dead_letters.replay import DeadLetterFilter
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.services.attempt.http_client import close_clients
from durable_retry.settings.configuration import find_dependency
from durable_retry.stores import tables
from durable_retry.stores.circuit_cache import close_circuits
from durable_retry.stores.dead_letters.index import Summary, read_summary
from durable_retry.stores.dead_letters.list import list_dead_letters
from durable_retry.stores.workflows import document_of_batch, find_batch
from tests.simulation import virtual_loop
from tests.simulation.app import App
from tests.simulation.hub import Instance
from tests.simulation.people import People
from tests.simulation.world import CALM, Chances, Scale, World

WORKERS: Final = 3
CALM_SECONDS: Final = 4 * 3_600.0
"""By then everything that was accepted has ended: deadlines are an hour."""

_RARE: Final = 0.15
"""How many small worlds have a batch, a saga, a malformed message."""

RECORD_SECONDS: Final = 90_000.0
"""A record lives for a day, unless the dependency says otherwise."""


@dataclass
class RunEnd:
    """The end of one run of an operation."""

    operation: OperationInput
    document: dict[str, Any]
    ended_at: datetime

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
        records: What is known of each key, by the operation's id.
        outliving: Operations whose record is there after its time.
        overfull: Circuits that let too many probe, as they did it.
    """

    world: World
    app: App
    people: People
    ends: list[RunEnd] = field(default_factory=list)
    letters: list[DeadLetterRecord] = field(default_factory=list)
    open_ids: list[str] = field(default_factory=list)
    summary: Summary | None = None
    batches: list[dict[str, Any]] = field(default_factory=list)
    records: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    outliving: list[str] = field(default_factory=list)
    overfull: list[str] = field(default_factory=list)

    @property
    def first_ends(self) -> dict[str, RunEnd]:
        """The end of the first run of each operation, by its id."""
        firsts = [end for end in self.ends if end.operation.replay_of is None]
        return {end.operation.operation_id: end for end in reversed(firsts)}

    @property
    def last_ends(self) -> list[RunEnd]:
        """The end of the last run of each operation."""
        return list({end.operation.operation_id: end for end in self.ends}.values())

    def ended(self, instance: Instance) -> None:
        """Take the end of an instance down."""
        if instance.name == OPERATION and instance.output is not None:
            operation = OperationInput.from_json(json.loads(instance.input)["operation"])
            document = json.loads(instance.output)
            # A start that is repeated after its run has ended makes no run: it gets that run's document.
            ended = (end for end in self.ends if end.operation.run_id == operation.run_id)
            if not any(end.document == document for end in ended):
                self.ends.append(RunEnd(operation, document, self.world.now()))

    def entity_changed(self, entity: str, _operation: str, _input: Any, _before: Any, after: Any) -> None:
        """Look at every state of a circuit."""
        _, name, key = entity.split("@", 2)
        dependency = find_dependency(key)
        if name != "circuit_breaker" or dependency is None:
            return
        breaker = breaker_from_json(after)
        probing = len(breaker.leases) + breaker.probe_successes
        if probing > dependency.circuit.half_open_calls:
            self.overfull.append(f"{key} lets {probing} probe at {self.world.now()}")

    async def look(self) -> None:
        """Read what the app itself says in the end."""
        rows = self.app.tables.rows("DeadLetters")
        self.letters = [
            DeadLetterRecord.from_json(json.loads(tables.unpacked("document", row))) for row in rows
        ]
        cursor: str | None = None
        while True:
            page = await list_dead_letters(DeadLetterFilter(status=Status.OPEN), limit=200, cursor=cursor)
            self.open_ids += [record.id for record in page.records]
            cursor = page.cursor
            if cursor is None:
                break
        self.summary = await read_summary()
        for batch_id in sorted(self.people.batches):
            batch = await find_batch(batch_id)
            assert batch is not None, batch_id
            self.batches.append(await document_of_batch(batch))
        self.records = self._records()

    async def look_again(self) -> None:
        """See what is left when the time of every record is over."""
        await asyncio.sleep(RECORD_SECONDS)
        self.outliving = [name for name, record in self._records().items() if record is not None]

    def _records(self) -> dict[str, dict[str, Any] | None]:
        prefix = f"@{IDEMPOTENCY_RECORD}@"
        states = self.app.hub.states.items()
        return {name.removeprefix(prefix): state for name, state in states if name.startswith(prefix)}


def told(seed: int, operations: int, *defects: Any) -> Story:
    """Let a world happen.

    Args:
        seed: Everything in it follows from this and the number of operations.
        operations: How many are submitted one by one; batches and sagas come on top.
        defects: Patches that break the app.
    """
    return virtual_loop.run(_happened(seed, operations, defects))


async def _happened(seed: int, operations: int, defects: Sequence[Any]) -> Story:
    world = World(seed, Chances.of(seed), Scale.of(operations))
    asyncio.get_running_loop().set_exception_handler(lambda _loop, told: _unheard(world, told))
    app = App(world)
    story = Story(world, app, People(world, app))
    app.hub.on_end, app.hub.on_entity = story.ended, story.entity_changed
    with app.in_place(*defects):
        for _ in range(WORKERS):
            world.give_birth()
        janitor = asyncio.create_task(story.people.janitor())
        await asyncio.gather(*_crowd(story.people, world.scale))
        await asyncio.sleep(max(0.0, world.scale.storm_seconds - world.seconds))
        world.chances = CALM
        await story.people.replay_everything()
        await _quiet(story)
        janitor.cancel()
        await story.look()
        await story.look_again()
        await world.end()
        close_circuits()
        await close_clients()
    return story


def _unheard(world: World, told: dict[str, Any]) -> None:
    """Take down what was raised where nobody hears it."""
    if not world.over:
        world.mistake("nobody expected", repr(told.get("exception")), told.get("message"))


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
        people.operator(),
        people.electrician(),
    ]


async def _quiet(story: Story) -> None:
    """Wait until nothing happens any more, or for so long that it never will."""
    hub, until = story.app.hub, story.world.seconds + CALM_SECONDS
    calm_looks = 0
    while story.world.seconds < until and calm_looks < story.world.scale.calm_looks:
        await asyncio.sleep(60)
        busy = hub.under_way or any(each.is_running for each in hub.instances.values())
        calm_looks = 0 if busy else calm_looks + 1
