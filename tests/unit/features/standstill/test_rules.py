from datetime import datetime, timedelta

import pytest

from durable_retry.features.standstill.rules import (
    BETWEEN_CHECKS,
    CLOCKS_DIFFER,
    MOST_CHECKS,
    PATIENCE,
    Expected,
    QueueCheck,
    QueueChecks,
)
from tests.support.builders import NOON

LATE_AFTER = timedelta(minutes=2)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


ASKED = Expected(NOON, is_answer=True)
WAIT = Expected(NOON)


@pytest.mark.parametrize("expected", [ASKED, WAIT], ids=["answer", "wait"])
@pytest.mark.parametrize(
    "checks",
    [
        (),
        (QueueCheck(at(60)),),
        (QueueCheck(at(-1), at(30)),),
        (QueueCheck(NOON + CLOCKS_DIFFER, at(30)),),
    ],
    ids=["no check", "under way", "asked before it", "perhaps asked before it"],
)
def test_nothing_is_lost_before_a_check_that_was_asked_after_it_is_through(
    expected: Expected, checks: tuple[QueueCheck, ...]
) -> None:
    assert QueueChecks(checks).lost_since(expected, LATE_AFTER) is None


def test_an_answer_has_its_time_from_when_a_check_was_through_and_not_from_when_it_was_asked_for() -> None:
    checks = QueueChecks((QueueCheck(at(1), at(40)), QueueCheck(at(2), at(41))))
    assert checks.lost_since(ASKED, LATE_AFTER, timedelta(minutes=5)) == at(47)


def test_what_is_over_is_lost_two_minutes_later_or_when_the_check_is_through() -> None:
    assert QueueChecks((QueueCheck(at(1), at(1)),)).lost_since(WAIT, LATE_AFTER) == at(2)
    assert QueueChecks((QueueCheck(at(1), at(7)),)).lost_since(WAIT, LATE_AFTER) == at(7)


def test_one_check_is_under_way_at_a_time_and_a_lost_one_does_not_keep_others_back() -> None:
    checks = QueueChecks().asked(NOON)
    assert QueueChecks().is_due(NOON)
    assert not checks.is_due(NOON + PATIENCE - timedelta(seconds=1))
    assert checks.is_due(NOON + PATIENCE)
    (check,) = checks.under_way
    through = checks.through(check, at(0.1))
    assert through == QueueChecks((QueueCheck(NOON, at(0.1)),))
    assert through.under_way == ()
    assert not through.is_due(NOON + BETWEEN_CHECKS - timedelta(seconds=1))
    assert through.is_due(NOON + BETWEEN_CHECKS)


def test_a_check_that_failed_is_forgotten_and_none_is_through_before_it_was_asked() -> None:
    checks = QueueChecks().asked(NOON)
    assert checks.through(checks.checks[0], None) == QueueChecks()
    assert checks.through(checks.checks[0], at(-1)) == QueueChecks((QueueCheck(NOON, NOON),))


def test_a_long_backlog_leaves_the_first_check_and_a_bounded_number() -> None:
    checks = QueueChecks()
    for minute in range(500):
        checks = checks.asked(at(minute)).through(QueueCheck(at(minute)), at(minute))
    assert len(checks.checks) <= MOST_CHECKS
    assert checks.checks[0].asked_at == NOON
    assert checks.checks[-1].asked_at == at(499)
    assert [*checks.checks] == sorted(checks.checks, key=lambda check: check.asked_at)
    assert QueueChecks.from_json(checks.to_json()) == checks
