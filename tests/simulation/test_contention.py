"""Who goes first where many want the same: the whole app, in a world where nothing goes wrong by itself.

Each operation is judged by its place in the order of the calls that the dependency saw, never by a time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from statistics import mean
from typing import Final

from durable_retry.attempt.http_client import close_clients
from durable_retry.base.names import Priority
from durable_retry.circuit.cache import close_circuits
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import using
from tests.simulation import virtual_loop
from tests.simulation.app import App
from tests.simulation.chances import CALM, Scale
from tests.simulation.people import People
from tests.simulation.story import WORKERS
from tests.simulation.targets import Call, Mood
from tests.simulation.world import World

DEPENDENCIES: Final = """
[defaults.timeouts]
deadline_seconds = 36000
[defaults.retry_budget]
ratio = 0.0

[dependencies.stock]
base_url = "http://stock/v1"
limits = { max_concurrency = 1 }

"""

SEED: Final = 7
EACH: Final = 24
"""Operations of each priority."""

type Scene = Callable[[People], Awaitable[None]]


def played(scene: Scene, seed: int = SEED) -> App:
    """Let a scene happen to the app, and return it when everything has been at rest for a while."""
    return virtual_loop.run(_played(scene, seed))


async def _played(scene: Scene, seed: int) -> App:
    world = World(seed, CALM, Scale.of(EACH))
    app = App(world)
    for target in app.targets.values():
        target.phases.append((0.0, Mood.WELL))
    with app.in_place(using(parse_config(DEPENDENCIES, {}))):
        for _ in range(WORKERS):
            world.give_birth()
        try:
            await scene(People(world, app))
            while any(each.is_running for each in app.hub.instances.values()):  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(1)
        finally:
            await world.end()
            close_circuits()
            await close_clients()
    assert world.mistakes == []
    return app


async def submit(people: People, dependency: str, priority: Priority, number: int) -> None:
    """Submit an operation, which is accepted."""
    body = {
        "dependency": dependency,
        "request": {"method": "POST", "path": f"/{number}"},
        "key": f"{dependency}-{priority.value}-{number}",
        "priority": priority.value,
    }
    status, answer = await people.call("submit", body)
    assert status == 202, answer


async def submit_of(people: People, limit_key: str, number: int) -> None:
    """Submit an operation of a customer, which is accepted."""
    request = {"method": "POST", "path": f"/{number}"}
    body = {"dependency": "stock", "request": request, "key": f"{limit_key}-{number}", "limit_key": limit_key}
    status, answer = await people.call("submit", body)
    assert status == 202, answer


async def submit_many(people: People, dependency: str, count: int = EACH) -> None:
    """Submit so many of each priority that they all want the dependency at once; `low` comes first."""
    low_first = (Priority.LOW, Priority.NORMAL, Priority.HIGH)
    await asyncio.gather(
        *(submit(people, dependency, each, number) for number in range(count) for each in low_first)
    )


def priority_of(call: Call) -> Priority:
    return call.operation.priority or Priority.NORMAL


def mean_places(calls: list[Call]) -> list[float]:
    """Return the mean place of each priority among calls, the highest first."""
    return [
        mean(place for place, call in enumerate(calls) if priority_of(call) is each)
        for each in (Priority.HIGH, Priority.NORMAL, Priority.LOW)
    ]


def assert_higher_ones_went_first(calls: list[Call], count: int = EACH) -> None:
    assert len({call.operation.operation_id for call in calls}) == len(calls) == 3 * count
    places = mean_places(calls)
    assert places == sorted(places)
    assert len(set(places)) == len(places)


def test_a_limit_lets_the_higher_priority_go_first() -> None:
    few = 12
    app = played(lambda people: submit_many(people, "stock", few))
    assert_higher_ones_went_first(app.targets["stock"].calls, few)


def test_a_customer_that_comes_to_the_backlog_of_another_goes_in_turn_with_it() -> None:
    async def backlog(people: People) -> None:
        calls = people.app.targets["stock"].calls
        await asyncio.gather(*(submit_of(people, "many", number) for number in range(EACH)))
        while not calls:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)
        await asyncio.gather(*(submit_of(people, "few", number) for number in range(4)))

    lasts = []
    for seed in range(SEED, SEED + 6):
        order = [call.operation.limit_key for call in played(backlog, seed).targets["stock"].calls]
        assert len(order) == EACH + 4
        assert order[0] == "many"
        lasts.append(max(place for place, key in enumerate(order) if key == "few"))
    # Turn about it would be 7; who asks a moment later than a slot is free lets another one in between.
    assert mean(lasts) <= 14, lasts


def test_a_limit_never_starves_low_while_higher_ones_keep_coming() -> None:
    async def stream(people: People) -> None:
        calls = people.app.targets["stock"].calls
        await asyncio.gather(*(submit(people, "stock", Priority.HIGH, number) for number in range(4)))
        while not calls:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)
        await asyncio.gather(*(submit(people, "stock", Priority.LOW, number) for number in range(2)))
        for number in range(4, 80):  # Whenever one goes another comes, so some always wait.
            while len(calls) < number - 2:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.01)
            await submit(people, "stock", Priority.HIGH, number)

    order = [priority_of(call) for call in played(stream).targets["stock"].calls]
    assert len(order) == 82
    last_low = max(place for place, each in enumerate(order) if each is Priority.LOW)
    assert last_low < 78, "it went before the last ones had come"
