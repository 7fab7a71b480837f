import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.circuit.entity import (
    BETWEEN_PASSES,
    PASSES,
    SETTLE,
)
from durable_retry.features.freeze.names import COUNT_FROZEN, KEEP_FROZEN, THAW_EVENT, WAKE_FROZEN
from durable_retry.features.freeze.rules import Crowd, Seen, Thaw, Wave, crowds_to_json
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.snapshot import release_seconds
from orchestrators.freeze import LOOK_AGAIN, LOOK_WHILE_HELD, LOOK_WHILE_THAWING, freeze
from tests.support.builders import NOON, after, an_operation
from tests.support.stage import Stage

FREEZE = Freeze(NOON, NOON, "ada", "wrong amounts")
THAW = Thaw("ada", after(1), (0.1, 1.0), 30)
CROWDS = {"payments": Crowd(3, 0.2)}


@dataclass
class Play:
    """The answers of a freeze's activities.

    Attributes:
        seen: What the activity sees in turn that tells the circuits; the last one again and again.
        crowds: Who waits, on each page in turn.
        woken: How many each pass wakes; none after the last.
    """

    seen: list[Seen] = field(default_factory=lambda: [Seen()])
    crowds: list[dict[str, Crowd]] = field(default_factory=lambda: [CROWDS])
    woken: list[int] = field(default_factory=lambda: [1])

    def answer(self, name: str, given: dict[str, Any]) -> Any:
        if name == KEEP_FROZEN:
            return (self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]).to_json()
        page = int(given["position"] or 0)
        if name == COUNT_FROZEN:
            following = str(page + 1) if page + 1 < len(self.crowds) else None
            return {"crowds": crowds_to_json(self.crowds[page]), "following": following}
        return {"woken": self.woken.pop(0) if self.woken else 0, "following": None}


def a_stage(play: Play, said: Freeze = FREEZE, **more: Any) -> Stage:
    stage = Stage(an_operation(), play.answer, freeze)
    stage._begin(json.dumps({"freeze": said.to_json(), **more}))
    return stage


def ask_for(thaw: Any, stage: Stage) -> None:
    """Ask for a thaw once the freeze is shown."""
    stage.run_until_waiting()
    stage.raise_event(THAW_EVENT, thaw)


def said(stage: Stage, activity: str = KEEP_FROZEN) -> list[Freeze]:
    """Return what the circuits were told in turn, each once."""
    each = [Freeze.from_json(given["freeze"]) for name, given in stage.activities if name == activity]
    return [one for number, one in enumerate(each) if number == 0 or one != each[number - 1]]


def test_a_freeze_is_kept_until_its_end() -> None:
    stage = a_stage(Play(), replace(FREEZE, until=after(150)))
    assert stage.run() == {"end": "over"}
    assert stage.now == after(150)
    assert stage.made(KEEP_FROZEN) == 3
    assert stage.executions == 4  # the stage begins one that is not run


def test_a_freeze_without_an_end_is_told_again_each_minute() -> None:
    stage = a_stage(Play())
    for _ in range(8):
        stage.run_until_waiting()
        stage._fire_next_timer()
    assert stage.made(KEEP_FROZEN) == 8
    assert stage.now == NOON + 8 * LOOK_WHILE_HELD


def test_a_circuit_that_did_not_hear_of_it_is_told_again_soon() -> None:
    stage = a_stage(Play(seen=[Seen(told=2), Seen(told=1), Seen()]))
    for seconds in (0, 2, 4, 64):
        stage.run_until_waiting()
        assert stage.now == after(seconds)
        stage._fire_next_timer()


def test_a_wave_goes_once_all_circuits_have_heard_of_it() -> None:
    stage = a_stage(Play(seen=[Seen(), Seen(told=2), Seen(told=1), Seen()]))
    ask_for(THAW.to_json(), stage)
    while stage.made(WAKE_FROZEN) == 0:
        stage.run_until_waiting()
        stage._fire_next_timer()
    assert stage.made(KEEP_FROZEN) == 4
    assert stage.activities[-1][1]["changed_at"] == to_rfc3339(NOON + 2 * LOOK_AGAIN + SETTLE)


def test_the_end_is_told_until_all_circuits_have_heard_of_it_however_many_messages_are_lost() -> None:
    thaw = replace(THAW, waves=(1.0,)).to_json()
    stage = a_stage(Play(seen=[Seen(), Seen(), Seen(told=1), Seen()], crowds=[{}]), thaw=thaw)
    assert stage.run() == {"end": "thawed"}
    assert (stage.made(KEEP_FROZEN), stage.now) == (4, NOON + LOOK_AGAIN)
    stage = a_stage(Play(seen=[*[Seen(told=1)] * 30, Seen()], crowds=[{}]), thaw=thaw)
    assert stage.run() == {"end": "thawed"}
    assert stage.made(KEEP_FROZEN) > 30


def test_another_freeze_ends_it() -> None:
    assert a_stage(Play(seen=[Seen(is_latest=False)])).run() == {"end": "replaced"}
    stage = a_stage(Play(seen=[Seen(), Seen(), Seen(is_latest=False)]))
    ask_for(THAW.to_json(), stage)
    assert stage.run() == {"end": "replaced"}


def test_a_thaw_lets_each_wave_go_and_ends_the_freeze() -> None:
    stage = a_stage(Play(woken=[1, 0, 2]))
    ask_for(THAW.to_json(), stage)
    assert stage.run() == {"end": "thawed"}
    first, second, third, last = said(stage)
    assert (first.share, second.share, third.share, last.share) == (None, 0.1, 1.0, 1.0)
    assert (last.until, last.since) == (stage.now, NOON)
    waves = [given for name, given in stage.activities if name == WAKE_FROZEN]
    assert [wave["freeze"]["share"] for wave in waves] == [0.1, 0.1, 1.0, 1.0]
    assert all(wave["crowds"] == crowds_to_json(CROWDS) for wave in waves)
    watched = release_seconds(1) + release_seconds(2) + 2 * THAW.wave_seconds
    waited = 2 * (SETTLE + BETWEEN_PASSES) + timedelta(seconds=watched)
    assert waited <= stage.now - NOON <= waited + timedelta(seconds=4)


def test_a_thaw_begins_that_comes_in_the_turn_in_which_the_circuits_are_checked_again() -> None:
    stage = a_stage(Play())
    stage.run_until_waiting()
    stage._fire_next_timer()
    stage.raise_event(THAW_EVENT, THAW.to_json())
    stage.run_until_waiting()
    assert stage.made(COUNT_FROZEN) == 1


def test_a_wave_begins_when_all_workers_see_it() -> None:
    stage = a_stage(Play(crowds=[CROWDS, {"mail": Crowd(1, 0.5)}]))
    ask_for(THAW.to_json(), stage)
    stage.run_until_waiting()
    assert stage.made(WAKE_FROZEN) == 0
    assert Wave.from_json(stage.custom_status["wave"]) == Wave(1, (0.1, 1.0), "ada", waiting=4)
    stage._fire_next_timer()
    stage.run_until_waiting()
    assert stage.made(WAKE_FROZEN) == 1
    (_, given) = stage.activities[-1]
    assert given["changed_at"] == "2026-11-21T12:00:02Z"
    assert list(given["crowds"]) == ["mail", "payments"]


def test_waves_without_anybody_are_not_waited_for() -> None:
    stage = a_stage(Play(crowds=[{}]))
    ask_for(THAW.to_json(), stage)
    assert stage.run() == {"end": "thawed"}
    assert stage.now == NOON
    assert stage.made(WAKE_FROZEN) == 0


def test_the_first_circuit_that_opens_stops_a_thaw_and_another_may_follow() -> None:
    opened = Seen(opened="the circuit of payments opened")
    stage = a_stage(Play(seen=[Seen(), Seen(), Seen(), opened, Seen()]))
    ask_for(THAW.to_json(), stage)
    while stage.now < NOON + LOOK_WHILE_HELD:
        stage.run_until_waiting()
        stage._fire_next_timer()
    held = said(stage)[-1]
    assert held.reason == "the circuit of payments opened in wave 1 of 2; before: wrong amounts"
    assert held.share is None
    assert stage.custom_status.keys() == {"due_at"}
    # What was asked for before it was stopped does not begin.
    ask_for(THAW.to_json(), stage)
    stage.run_until_waiting()
    assert said(stage)[-1] == held
    ask_for(replace(THAW, began_at=stage.now).to_json(), stage)
    stage.run_until_waiting()
    assert said(stage)[-1].share == 0.1


def test_of_thaws_that_were_requested_before_the_first_wave_the_latest_begins() -> None:
    together, later = (replace(THAW, by=by, waves=(share, 1.0)) for by, share in (("ben", 0.2), ("eve", 0.3)))
    stage = a_stage(Play())
    ask_for(THAW.to_json(), stage)
    stage.raise_event(THAW_EVENT, together.to_json())
    stage.raise_event(THAW_EVENT, 5)
    stage.run_until_waiting()
    assert (said(stage)[-1].share, stage.custom_status["wave"]["by"]) == (0.2, "ben")
    assert stage.run() == {"end": "thawed"}

    class Slow(Play):
        def answer(self, name: str, given: dict[str, Any]) -> Any:
            if name == COUNT_FROZEN and said(stage)[-1].share is None:
                stage.raise_event(THAW_EVENT, later.to_json())
            return super().answer(name, given)

    stage = a_stage(Slow())
    ask_for(THAW.to_json(), stage)
    assert stage.run() == {"end": "thawed"}
    assert [freeze.share for freeze in said(stage)] == [None, 0.3, 1.0, 1.0]


@pytest.mark.parametrize("data", [None, 5, {"waves": "all"}])
def test_an_event_that_is_no_thaw_changes_nothing(data: Any) -> None:
    stage = a_stage(Play())
    ask_for(data, stage)
    stage.run_until_waiting()
    assert said(stage) == [FREEZE]


def test_a_thaw_may_begin_with_the_freeze() -> None:
    assert a_stage(Play(), thaw=THAW.to_json()).run() == {"end": "thawed"}


def test_a_long_watch_is_parted_into_histories() -> None:
    stage = a_stage(Play(woken=[]), thaw=replace(THAW, waves=(1.0,), wave_seconds=3_600).to_json())
    assert stage.run() == {"end": "thawed"}
    assert stage.longest_history < 200
    assert stage.made(KEEP_FROZEN) >= 3_600 / LOOK_WHILE_THAWING.total_seconds()


def test_passes_have_an_end_where_pages_shift_for_ever() -> None:
    stage = a_stage(Play(woken=[1] * 50), thaw=replace(THAW, waves=(1.0,)).to_json())
    stage.run()
    assert stage.made(WAKE_FROZEN) == PASSES
