import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.circuit.cache import circuit_of, close_circuits
from durable_retry.circuit.entity import CircuitEntity
from durable_retry.features.order import lanes as looks
from durable_retry.features.order.lanes import look_at_lanes
from durable_retry.features.order.rules.lane import Lane
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.config.dependencies_file import Config
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from durable_retry.storage import clients as storage_clients
from tests.support.builders import NOON, PAYMENTS, after
from tests.support.feature_parts import a_lane
from tests.support.tables import TablesInMemory

HUB = TaskHub("{}")
FREEZE = Freeze(after(-60), after(-60), "ada", "wrong amounts")


class Pages:
    """Three pages of one lane each, whose fronts are alive, and a clock that goes on by a second for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_seconds = 0.0
        self.looked_at: list[str] = []
        account = TablesInMemory()
        monkeypatch.setattr(storage_clients, "table_service", lambda: account)
        monkeypatch.setattr(clock, "monotonic_seconds", lambda: self.now_seconds)
        monkeypatch.setattr(looks, "lanes_after", self.lanes_after)
        monkeypatch.setattr(looks, "find_status", self.find_status)

    async def lanes_after(self, _: TaskHub, place: str | None) -> tuple[list[Lane], str | None]:
        number = 0 if place is None else int(place)
        return [a_lane(f"lane-{number}", NOON, blocked=False)], str(number + 1) if number < 2 else None

    async def find_status(self, _: TaskHub, operation_id: str) -> dict[str, Any]:
        self.looked_at.append(operation_id)
        self.now_seconds += 1
        return {"status": "running"}


@pytest.mark.parametrize(
    ("seconds", "runs"),
    [
        (9.0, [["op-lane-0", "op-lane-1", "op-lane-2"], ["op-lane-0", "op-lane-1", "op-lane-2"]]),
        (2.0, [["op-lane-0", "op-lane-1"], ["op-lane-2"], ["op-lane-0", "op-lane-1"]]),
        (0.0, [["op-lane-0"], ["op-lane-1"], ["op-lane-2"], ["op-lane-0"]]),
    ],
)
async def test_upkeep_looks_at_lanes_for_a_while_and_goes_on_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch, seconds: float, runs: list[list[str]]
) -> None:
    pages = Pages(monkeypatch)
    for expected in runs:
        await look_at_lanes(HUB, seconds)
        assert pages.looked_at == expected
        pages.looked_at.clear()


@pytest.mark.parametrize("error", [TaskHubUnavailableError("away"), asyncio.CancelledError()])
@pytest.mark.shows("P15")
async def test_a_lane_that_cannot_be_looked_at_keeps_no_other_from_its_look(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A run that ends within a lane, by its error or by the end of its time, does not begin there again."""
    pages = Pages(monkeypatch)

    async def fail(_: TaskHub, operation_id: str) -> dict[str, Any]:
        if operation_id == "op-lane-0":
            raise error
        return await pages.find_status(HUB, operation_id)

    monkeypatch.setattr(looks, "find_status", fail)
    with pytest.raises(type(error)):
        await look_at_lanes(HUB, 0.0)
    await look_at_lanes(HUB, 0.0)
    assert pages.looked_at == ["op-lane-1"]


@pytest.mark.parametrize(
    ("freeze", "ended_at", "is_refused"),
    [
        (replace(FREEZE, stops_deadline=True), None, True),
        (replace(FREEZE, stops_deadline=True, share=1.0), None, False),
        (replace(FREEZE, stops_deadline=True, until=after(-9)), after(-9), False),
        (FREEZE, None, None),
        (None, None, None),
    ],
)
async def test_a_hold_of_everything_is_found_where_it_stops_the_deadlines_also_once_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
    freeze: Freeze | None,
    ended_at: datetime | None,
    is_refused: bool | None,  # noqa: FBT001 - a parameter of the test
) -> None:
    async def read(_: CircuitEntity) -> Breaker:
        return Breaker(freeze=freeze)

    monkeypatch.setattr(CircuitEntity, "read", read)
    circuit = circuit_of(HUB, PAYMENTS)
    circuit.now = lambda: NOON
    try:
        with using(Config({"payments": PAYMENTS})):
            held = await looks.hold_of(HUB, "payments", "op-1")
            assert await looks.hold_of(HUB, "gone", "op-1") is None
    finally:
        close_circuits()
    if is_refused is None:
        assert held is None
        return
    assert (held and (held.since, held.why, held.ended_at, held.refused is not None)) == (
        after(-60),
        "held by ada since 2026-11-21T11:59:00Z: wrong amounts",
        ended_at,
        is_refused,
    )
