"""Two starts of one key that both run, as Azure Storage lets through now and then.

Each has a history of its own. Their turns and attempts follow each other in any order, on the same tables,
and a worker may die before or after it ran an activity. Seeds choose, and a mistake has to show in one.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final
from unittest.mock import patch

import httpx
import pytest

import durable_retry
from activities.operation import commit
from durable_retry.attempt.attempt import make_attempt
from durable_retry.attempt.http_client import sending_over
from durable_retry.features.handlers import registry
from durable_retry.features.handlers.starts import Starts, count_start
from durable_retry.handlers import Call, Outcome, TableWrite, Transient
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.operations.keys import Life, Met
from durable_retry.rules.operations.operation import AttemptCall, OperationInput
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from durable_retry.storage import clients as storage_clients
from tests.support.builders import NOON, an_operation
from tests.support.feature_parts import followed_by
from tests.support.stage import Stage
from tests.support.tables import TablesInMemory

WORLDS: Final = range(40)
CONFIG: Final = """
[dependencies.unsafe]
base_url = "http://unsafe.test"
idempotency = { header = "" }

[dependencies.safe]
base_url = "http://safe.test"
"""
EVENT: Final = {"type": "charged", "queue": "charges", "data": None}
TABLE: Final = "Orders"


@dataclass
class World:
    """What two starts do to the same dependency and the same tables."""

    random: Random
    tables: TablesInMemory = field(default_factory=TablesInMemory)
    refusals: int = 0
    deaths: float = 0.0
    effects: list[str] = field(default_factory=list)

    def sent(self, request: httpx.Request) -> httpx.Response:
        if self.refusals:
            self.refusals -= 1
            return httpx.Response(429)
        effect = request.headers.get("Idempotency-Key", f"request {len(self.effects)}")
        if effect not in self.effects:
            self.effects.append(effect)
        return httpx.Response(200, json={})

    async def ship(self, call: Call) -> Outcome:
        """Charge once, then fail now and then; a success writes a row that must be new, and has an event."""
        await call.step("charge", self.charge, repeatable=False)
        if self.random.random() < 0.4:
            raise Transient("no ship")
        row = TableWrite(table=TABLE, partition_key="orders", row_key="o-1", values={}, mode="insert")
        return Outcome(1, writes=[row], events=[durable_retry.Event(type="shipped", queue="ships")])

    def charge(self) -> int:
        self.effects.append("charge")
        return len(self.effects)

    def answer(self, name: str, given: dict[str, Any]) -> Any:
        """Run an activity, unless its worker dies before; what it did is done where that dies after it."""
        dies = self.random.random()
        if dies < self.deaths / 2:
            return RuntimeError("the worker died before")
        answered = asyncio.run(self._run(name, given))
        return RuntimeError("the worker died after") if dies < self.deaths else answered

    async def _run(self, name: str, given: dict[str, Any]) -> Any:
        if name == "attempt":
            call = AttemptCall.from_json(given)
            assert call.operation is not None
            return (await make_attempt(OperationInput.from_json(call.operation), call.attempt)).to_json()
        return await commit(given) if name == "commit" else "dl-1"


def played(seed: int, *, deaths: float = 0.0, **operation: Any) -> tuple[World, list[Stage]]:
    """Play two starts to their ends."""
    random = Random(seed)  # noqa: S311 - what follows from a seed
    world = World(random, refusals=random.randrange(3), deaths=deaths)
    first = an_operation(**({"deadline_in": None, "dependency": "unsafe"} | operation))
    second = first.restarted(NOON + timedelta(seconds=random.uniform(0, 500)))
    second = replace(second, created_at=first.created_at)
    stages = [Stage(each, world.answer) for each in random.sample([first, second], 2)]
    with _app_on(world):
        while running := [each for each in stages if not each.ended]:
            stage = random.choice(running)
            if not stage.inbox:
                stage._fire_next_timer()
            with clock.reading(partial(getattr, stage, "now")):
                stage.turn()
    assert [each.failure for each in stages] == [None, None]
    return world, stages


@contextmanager
def _app_on(world: World) -> Iterator[None]:
    transport = httpx.MockTransport(world.sent)
    with (
        patch.object(storage_clients, "table_service", lambda: world.tables),
        patch.object(registry, "_handlers", {}),
        using(parse_config(CONFIG, {})),
        sending_over(lambda _: transport),
    ):
        durable_retry.operation("ship", dependency="unsafe", repeatable=True)(world.ship)
        yield


def contradictions(world: World, stages: list[Stage]) -> Iterator[str]:
    """What does not hold of two starts of one life."""
    if len(world.effects) > 1:
        yield f"the dependency was asked {len(world.effects)} times"
    succeeded = [each.output for each in stages if each.output["status"] == "succeeded"]
    if not world.deaths and not succeeded:
        yield "none succeeded"
    if len({json.dumps(each["events"]) for each in succeeded}) > 1:
        yield "they show different events"
    sent = [row["RowKey"] for name in (TABLE, "Commits") for row in world.tables.rows(name)]
    events = [name for name in sent if name.startswith("outbox-")]
    wanted = len(succeeded[0]["events"]) if succeeded else 0
    if succeeded and len(events) != wanted:
        yield f"there are {len(events)} events of {wanted}"


KINDS: Final[dict[str, dict[str, Any]]] = {
    "a request": followed_by(EVENT),
    "a request with a key": {**followed_by(EVENT), "dependency": "safe"},
    "a handler": {"handler": "ship", "request": None, "input": {}},
}


@pytest.mark.parametrize("deaths", [0.0, 0.2])
@pytest.mark.parametrize("kind", KINDS)
def test_two_starts_of_one_life_take_effect_once(kind: str, deaths: float) -> None:
    for seed in WORLDS:
        assert list(contradictions(*played(seed, deaths=deaths, **KINDS[kind]))) == [], f"seed {seed}"


def _meets_nobody(life: Life, run: int, _owner: str | None = None) -> Met:
    return Met.SAME if run == life.run else Met.EARLIER


async def _takes_its_own(_operation_id: str, life: Life, _now: Any) -> int:
    return life.run


async def _in_its_own_run(life: Life, *given: Any) -> Starts:
    return replace(await count_start(life, *given), run=life.run)


MISTAKES: Final[dict[str, tuple[str, Callable[[], Any]]]] = {
    "markers by run": (
        "a request",
        lambda: patch.object(OperationInput, "owner", property(lambda operation: operation.run_id)),
    ),
    "lives of a moment": ("a request", lambda: patch.object(Life, "meet", _meets_nobody)),
    "commits by run": (
        "a request with a key",
        lambda: patch("durable_retry.operations.actions.take_commit", _takes_its_own),
    ),
    "steps by run": (
        "a handler",
        lambda: patch("durable_retry.features.handlers.attempt.count_start", _in_its_own_run),
    ),
    "a run forgotten": (
        "a handler",
        lambda: patch("durable_retry.features.handlers.attempt.in_run_of_plan", lambda outcome, *_: outcome),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_what_two_starts_share_is_seen(mistake: str) -> None:
    kind, made = MISTAKES[mistake]
    with made():
        assert any(list(contradictions(*played(seed, **KINDS[kind]))) for seed in WORLDS)
