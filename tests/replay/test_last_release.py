"""A deploy and a rollback: the last release's orchestrators on histories of today's, and the other way round.

An operation is handed over after each of its turns, in both directions, and back again. What v0.1.0 itself
wrote is in `histories/`, which `test_replay` replays with today's code.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest

from durable_retry.engine.base.names import OPERATION, Category
from durable_retry.engine.retry.policy import RetryPolicy
from orchestrators import operation
from tests.replay.last_release import ORCHESTRATORS, last_release
from tests.replay.recording import load, shapes
from tests.replay.test_replay import failures
from tests.support.builders import Activities, an_operation, failing
from tests.support.stage import Stage

type Story = Callable[[], Activities]


def _failing_here(times: int) -> Activities:
    """Return activities whose first runs fail without an answer."""
    left = [RuntimeError("the worker died")] * times
    answer = failing(1)
    return lambda name, given: left.pop() if left and name == "attempt" else answer(name, given)


STORIES: Final[dict[str, Story]] = {
    "healthy": lambda: failing(0),
    "retried": lambda: failing(3),
    "exhausted": lambda: failing(9),
    "refused": lambda: failing(9, Category.MALFORMED, 422),
    "failing here": lambda: _failing_here(2),
}


def played(story: str, who: Callable[[int], Any]) -> Stage:
    """Play a story to its end; `who` runs the turn of a number."""
    stage = Stage(an_operation(), STORIES[story]())

    def hand_over(stage: Stage) -> None:
        stage.orchestrator = who(stage.turns)

    stage.before_turn = hand_over
    stage.run()
    return stage


def end_of(stage: Stage) -> tuple[Any, ...]:
    document = stage.output
    return document["status"], document["attempt_count"], document["result"], len(stage.activities)


def todays_then_old(at: int) -> Callable[[int], Any]:
    """Return a rollback after so many turns."""
    new, old = operation.operation, last_release()[OPERATION]
    return lambda turn: new if turn < at else old


def old_then_todays(at: int) -> Callable[[int], Any]:
    """Return a deploy after so many turns."""
    new, old = operation.operation, last_release()[OPERATION]
    return lambda turn: old if turn < at else new


def in_turns(every: int, begins: int) -> Callable[[int], Any]:
    """Return both versions side by side."""
    both = operation.operation, last_release()[OPERATION]
    return lambda turn: both[(turn // every + begins) % 2]


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("handed_over", [todays_then_old, old_then_todays])
def test_an_operation_ends_alike_wherever_it_is_handed_over(
    story: str, handed_over: Callable[[int], Callable[[int], Any]]
) -> None:
    alone = played(story, lambda _turn: operation.operation)
    for at in range(alone.turns + 1):
        assert end_of(played(story, handed_over(at))) == end_of(alone), f"handed over after {at} turns"


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("begins", [0, 1])
def test_an_operation_ends_alike_where_both_run_side_by_side(story: str, begins: int) -> None:
    alone = played(story, lambda _turn: operation.operation)
    assert end_of(played(story, in_turns(1, begins))) == end_of(alone)


@pytest.mark.parametrize("begins", [0, 1])
def test_a_long_operation_goes_on_under_either(begins: int) -> None:
    policy = RetryPolicy(strategy="fixed", initial_seconds=10.0, jitter="none", max_attempts=60)
    stage = Stage(an_operation(policy=policy), failing(50))
    who = in_turns(7, begins)
    stage.before_turn = lambda stage: setattr(stage, "orchestrator", who(stage.turns))
    assert stage.run()["attempt_count"] == 51
    assert stage.executions > 1


def _is_known(shape: str) -> bool:
    """Whether the last release has what a history is of: it has no order."""
    return shape.partition("/")[0] in ORCHESTRATORS and not shape.endswith("in_order")


@pytest.mark.parametrize("shape", [shape for shape in shapes() if _is_known(shape)])
def test_the_last_release_replays_every_recorded_history(shape: str) -> None:
    recording = load(shape)
    assert failures(last_release()[recording.orchestrator], recording) == []


def test_every_orchestrator_is_kept() -> None:
    assert last_release().keys() == ORCHESTRATORS.keys()
    assert last_release()[OPERATION] is not operation.operation
