"""One simulated world from its beginning to its end."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from activities.downstream import close_clients
from engine.operation import OperationInput
from stores.circuits import close_circuits
from tests.simulation import virtual_loop
from tests.simulation.app import App
from tests.simulation.hub import Instance
from tests.simulation.people import People
from tests.simulation.targets import STORM_SECONDS
from tests.simulation.world import CALM, Chances, World

WORKERS = 3
CALM_SECONDS = 4 * 3_600.0
"""By then everything that was accepted has ended: deadlines are an hour."""


@dataclass
class RunEnd:
    """The end of one run of an operation."""

    operation: OperationInput
    document: dict[str, Any]


@dataclass
class Story:
    """What came of a world; what the invariants are about.

    Attributes:
        app: Afterwards.
        people: And what they were told.
        ends: Of the runs of operations, in order.
    """

    world: World
    app: App
    people: People
    ends: list[RunEnd] = field(default_factory=list)

    def ended(self, instance: Instance) -> None:
        """Take the end of an instance down."""
        if instance.name == "operation" and instance.output is not None:
            import json

            operation = OperationInput.from_json(json.loads(instance.input)["operation"])
            self.ends.append(RunEnd(operation, json.loads(instance.output)))


def told(seed: int, operations: int, defects: Sequence[Any] = (), chances: Chances | None = None) -> Story:
    """Let a world happen.

    Args:
        seed: Everything in it follows from this.
        operations: How many are submitted one by one; batches and sagas come on top.
        defects: Patches that break the app.
        chances: Of trouble; None means the usual ones.
    """
    return virtual_loop.run(_happened(seed, operations, defects, chances or Chances()))


async def _happened(seed: int, operations: int, defects: Sequence[Any], chances: Chances) -> Story:
    world = World(seed, chances)
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: world.over or world.mistake("nobody expected", context.get("exception"))
    )
    app = App(world)
    story = Story(world, app, People(world, app))
    app.hub.on_end = story.ended
    with app.in_place(*defects):
        for _ in range(WORKERS):
            world.give_birth()
        janitor = asyncio.create_task(story.people.janitor())
        await asyncio.gather(*_crowd(story.people, operations))
        await asyncio.sleep(max(0.0, STORM_SECONDS - world.seconds))
        world.chances = CALM
        await story.people.replay_everything()
        await _quiet(story)
        janitor.cancel()
        await world.end()
        close_circuits()
        await close_clients()
    return story


def _crowd(people: People, operations: int) -> list[Any]:
    return [
        *(people.caller(number) for number in range(operations)),
        *(people.malformed_message(number) for number in range(operations // 50)),
        *(people.batch(number) for number in range(1, 1 + operations // 100)),
        *(people.saga(number) for number in range(operations // 50)),
        people.operator(),
        people.electrician(),
    ]


async def _quiet(story: Story) -> None:
    """Wait until nothing happens any more, or for so long that it never will."""
    hub, until = story.app.hub, story.world.seconds + CALM_SECONDS
    calm_looks = 0
    while story.world.seconds < until and calm_looks < 20:
        await asyncio.sleep(60)
        busy = hub.under_way or any(each.is_running for each in hub.instances.values())
        calm_looks = 0 if busy else calm_looks + 1
