"""The host is cut at every hand-over: nothing that was accepted is lost, and nothing is done too often."""

import pytest

from onebox.faults import HostPoint
from tests.support.onebox.host_lives import Lives

pytestmark = pytest.mark.long


def check(lives: Lives, bad: list[str], cuts: int, cuts_of_copies: int = 1) -> None:
    """Everything has been done, and again only where a cut left no trace of the first time.

    Args:
        bad: Messages that always fail.
        cuts: How many there were.
        cuts_of_copies: How many may have come between a message's copy to the poison queue and its removal.
    """
    for instance_id in lives.refused:
        lives.post(instance_id)  # as a client does that got no answer
    for instance_id in lives.accepted:
        lives.until_finished(instance_id)
    lives.until_queue_is_empty()
    check_activities(lives, cuts)
    entries = lives.entries()
    good = [job for job in lives.jobs if job not in bad]
    runs = [entries[f"job {job}"] for job in good]
    assert min(runs) >= 1, "a message was lost"
    assert sum(runs) <= len(good) + cuts, "only what a cut had in flight may run again"
    poisoned = lives.poisoned()
    assert set(poisoned) == set(bad), "what always fails, and nothing else, is moved away"
    assert len(poisoned) <= len(bad) + cuts_of_copies, "only a cut behind a copy may leave another one"


def check_activities(lives: Lives, cuts: int) -> None:
    """An activity runs again only when its result was not on disk yet at a cut.

    After a kill that is in the next life, and each kill may meet it there: a busy machine has seen the same
    one cut twice in a row. Within a life only the one exception after an activity's end has it run again.
    """
    again_in_a_life = 0
    for instance_id in lives.accepted:
        runs = lives.runs_of_activity(instance_id)
        assert runs, "an activity was lost"
        assert len(runs) <= 1 + cuts, "only the life after a cut runs it again"
        again_in_a_life += runs.total() - len(runs)
    assert again_in_a_life <= lives.raised(HostPoint.ACTIVITY_RUN), "no life runs an activity twice"


@pytest.mark.timeout(300)
def test_kill_9_at_every_point_in_turn(lives: Lives) -> None:
    for life, point in enumerate(HostPoint):
        lives.begin("kill", point)
        lives.submit_job(f"good-{life}")
        if point is HostPoint.QUEUE_POISONED:
            lives.submit_job("bad")
        lives.post(f"instance-{life}")
        assert lives.died(), f"{point} was never visited"
    lives.begin("kill")  # no point: this life goes on
    ticks = lives.entries()["tick"]
    # The kill at its own point, and each later one, may find the message there.
    later = list(HostPoint)[list(HostPoint).index(HostPoint.QUEUE_POISONED) :]
    check(lives, ["bad"], cuts=len(HostPoint), cuts_of_copies=len(later))
    assert lives.struck() == list(HostPoint)
    assert lives.entries()["tick"] >= ticks


def test_an_exception_at_every_point(lives: Lives) -> None:
    lives.begin("raise")
    lives.submit_job("bad")
    for number in range(3):
        lives.submit_job(f"good-{number}")
        lives.post(f"instance-{number}")
    check(lives, ["bad"], cuts=len(HostPoint))
    assert set(lives.struck()) == set(HostPoint)
    assert lives.refused == ["instance-0", "instance-1"], "one request before its function ran, one after"
