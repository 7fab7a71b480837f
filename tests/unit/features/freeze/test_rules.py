from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.validation import InvalidInputError, validated
from durable_retry.features.freeze.rules import (
    Crowd,
    Due,
    FreezeBody,
    Release,
    Thaw,
    ThawBody,
    Wave,
    crowds_in,
    crowds_to_json,
    instance_id_of,
    joined,
    opened_during,
    preview_of,
    stopped,
    watched_until,
)
from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.snapshot import release_seconds
from tests.support.builders import NOON, after
from tests.support.circuit import Desk, tripped
from tests.support.mistakes import pointers_of
from tests.support.narrowing import existing

FREEZE = Freeze(NOON, NOON, "ada", "wrong amounts")
THAW = Thaw("ada", NOON, (0.1, 1.0), 30)


def test_a_freeze_is_as_its_body_says() -> None:
    freeze = FreezeBody(reason=" wrong amounts ", for_seconds=60).freeze(after(5), "ada", None)
    assert freeze == Freeze(after(5), after(5), "ada", "wrong amounts", after(65), stops_deadline=True)
    assert instance_id_of(freeze) == "release-freeze-1795262405000"


def test_deadlines_go_on_where_the_body_says_so() -> None:
    freeze = FreezeBody(reason="a drill", stops_deadline=False).freeze(NOON, "ada", None)
    assert (freeze.until, freeze.stops_deadline) == (None, None)


def test_a_freeze_is_later_than_the_one_before_whatever_the_clocks_say() -> None:
    freeze = FreezeBody(reason="a drill").freeze(after(-10), "ada", FREEZE)
    assert freeze.since == NOON + timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("waves", "pointer"),
    [
        ([], "/waves"),
        ([0.5], "/waves"),
        ([0.5, 0.5, 1], "/waves"),
        ([1, 0.5], "/waves"),
        ([0, 1], "/waves/0"),
    ],
)
def test_waves_rise_to_all(waves: list[float], pointer: str) -> None:
    assert pointers_of(validated, ThawBody, {"waves": waves}) == [pointer]


def test_a_thaw_has_three_waves_unless_told() -> None:
    assert ThawBody().waves == [0.01, 0.1, 1.0]
    assert validated(ThawBody, {"waves": [1]}).waves == [1.0]


@pytest.mark.parametrize("body", [{}, {"reason": " "}, {"reason": "x", "for_seconds": 0}])
def test_a_freeze_says_why(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        validated(FreezeBody, body)


def test_a_thaw_has_one_wave_after_the_other() -> None:
    assert THAW.share == 0.1
    second = existing(THAW.next())
    assert second.share == 1.0
    assert second.next() is None


def test_a_wave_lets_at_least_one_of_each_dependency_go() -> None:
    crowd = Crowd(3, 0.4)
    assert (crowd.share(0.01), crowd.share(0.5)) == (0.4, 0.5)


def test_crowds_of_two_pages_are_one() -> None:
    first, second = {"a": Crowd(2, 0.3), "b": Crowd(1, 0.5)}, {"a": Crowd(1, 0.1), "c": Crowd(1, 0.2)}
    both = joined(first, second)
    assert both == {"a": Crowd(3, 0.1), "b": Crowd(1, 0.5), "c": Crowd(1, 0.2)}
    assert crowds_in({"crowds": crowds_to_json(both)}) == both


def test_a_release_is_read_as_it_was_written() -> None:
    release = Release({"a": Crowd(2, 0.3)}, Wave(1, (0.1, 1.0), "ada", 2, 1), NOON)
    assert Release.from_json(release.to_json()) == release


def test_a_wave_is_watched_until_it_has_gone_and_for_a_while() -> None:
    wave = Wave(1, THAW.waves, "ada", 5_000, 500)
    assert watched_until(THAW, wave, NOON) == after(release_seconds(500) + 30)
    assert watched_until(THAW, replace(wave, waiting=0, released=0), NOON) == NOON


def opened(breaker: Breaker, at: float, began: float = 0) -> str | None:
    return opened_during(breaker, "payments", after(began), after(at))


def test_a_circuit_that_opened_since_is_named_with_what_it_got() -> None:
    breaker = tripped().breaker
    assert opened(breaker, 1) == "the circuit of payments opened at 2026-11-21T12:00:00Z"
    failed = replace(breaker, last_error="503: no backend")
    # Its break is over, and nobody has probed it.
    assert opened(failed, 60) == "the circuit of payments opened at 2026-11-21T12:00:00Z (503: no backend)"


def test_a_circuit_that_was_open_before_or_is_held_by_hand_stops_nothing() -> None:
    assert opened(tripped().breaker, 2, began=1) is None
    assert opened(Breaker(), 2) is None
    desk = Desk().control(1, ManualControl.OPEN)
    assert opened(desk.breaker, 2) is None


def test_what_stops_a_thaw_is_the_reason_of_the_freeze_that_goes_on() -> None:
    held = stopped(FREEZE.then(after(1), share=0.1), "the circuit of payments opened", THAW, after(2))
    assert (held.since, held.at, held.share, held.by) == (NOON, after(2), None, "ada")
    assert held.reason == "the circuit of payments opened in wave 1 of 2; before: wrong amounts"
    second = replace(THAW, number=1)
    again = stopped(held, "the circuit of mail opened", second, after(3))
    assert again.reason == "the circuit of mail opened in wave 2 of 2; before: wrong amounts"


def test_a_preview_counts_by_dependency() -> None:
    due = [
        Due("mail", after(60), is_held=False),
        Due("payments", after(90), is_held=False),
        Due("payments", after(30), is_held=True),
        Due("stock", None, is_held=False),
    ]
    preview = preview_of(due, after(3_600), is_complete=True)
    assert (preview.operations, preview.complete, preview.until) == (4, True, after(3_600))
    shown = [(part.dependency, part.operations, part.held, part.first_at) for part in preview.by_dependency]
    assert shown == [("payments", 2, 1, after(30)), ("mail", 1, 0, after(60)), ("stock", 1, 0, None)]
