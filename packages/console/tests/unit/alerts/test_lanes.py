"""Since when a lane has been blocked, by the dead letter in front of it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from durable_retry.features.dead_letter_lists.rules.numbers import DeadLetterSummary, open_dead_letters
from durable_retry.features.order.rules.lane import Lane
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.dead_letters.record import KeptDeadLetter, Status, of_operation
from durable_retry_console.alerts import gauges
from durable_retry_console.alerts import lanes as looks
from durable_retry_console.alerts.health import Look
from durable_retry_console.alerts.lanes import blocked_lanes
from tests.support.builders import NOON, after, an_entry
from tests.support.feature_parts import a_lane

NO_LETTERS = DeadLetterSummary(**dict(open_dead_letters(0, None, NOON)), by_reason={}, by_dependency={})


async def looked(letters: DeadLetterSummary | None = None) -> Look:
    """An hour after noon."""
    look = Look(TaskHub("{}"), after(3_600), {"lane_blocked_seconds": 300}, letters)
    await blocked_lanes(look)
    return look


async def blocked_seconds() -> float | None:
    return (await looked()).metrics["lane_blocked_seconds"].value


def a_letter(created_at: datetime) -> KeptDeadLetter:
    return of_operation(an_entry("op-1"), created_at)


class Stored:
    """The lanes and the dead letters, by the names of their lanes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lanes: Lane, **letters: KeptDeadLetter) -> None:
        self.read: list[str] = []

        async def given(_: Any) -> AsyncIterator[Lane]:
            for lane in lanes:
                yield lane

        async def find(letter_id: str) -> KeptDeadLetter | None:
            self.read.append(letter_id)
            return letters.get(letter_id.removeprefix("dl-"))

        monkeypatch.setattr(looks, "lanes", given)
        monkeypatch.setattr(looks, "find_dead_letter", find)


async def test_a_lane_is_blocked_since_its_front_became_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Stored(
        monkeypatch,
        a_lane("a", NOON, waiting=3),
        a_lane("b", after(10), waiting=1),
        a_lane("free", NOON, waiting=5, blocked=False),
        a=a_letter(after(60)),
        b=a_letter(after(30)),
    )
    look = await looked()
    assert look.metrics["lane_blocked_seconds"].value == 3_600 - 30
    assert (look.gauge_values[gauges.LANES_BLOCKED], look.gauge_values[gauges.LANES_WAITING]) == (
        [(2, {})],
        [(4, {})],
    )


async def test_one_that_came_to_the_front_as_a_dead_letter_blocks_since_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Stored(monkeypatch, a_lane("a", after(60)), a=a_letter(NOON))
    assert await blocked_seconds() == 3_600 - 60


async def test_one_that_is_being_replayed_or_is_gone_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = replace(a_letter(NOON), status=Status.REPLAYED)
    Stored(monkeypatch, a_lane("a", NOON), a_lane("gone", NOON), a=replayed)
    assert await blocked_seconds() == 0


async def test_no_more_dead_letters_are_read_than_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = {name: a_letter(after(5)) for name in "abc"}
    lanes = [a_lane(name, after(20 * number)) for number, name in enumerate("abc")]
    stored = Stored(monkeypatch, *lanes, **letters)
    assert await blocked_seconds() == 3_600 - 5
    assert stored.read == ["dl-a"]


async def test_nothing_is_read_while_no_dead_letter_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    Stored(monkeypatch, a_lane("a", NOON), a=a_letter(NOON))
    look = await looked(NO_LETTERS)
    assert look.metrics["lane_blocked_seconds"].value == 0
    assert look.gauge_values[gauges.LANES_BLOCKED] == [(0, {})]
