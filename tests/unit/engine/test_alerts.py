from datetime import timedelta

import pytest

from durable_retry.engine.alerts import Alert, HealthMetric, alert_changes
from tests.support.builders import NOON

LATER = NOON + timedelta(minutes=1)


def reading(value: float, threshold: float = 10) -> HealthMetric:
    return HealthMetric("dead_letters", value, threshold)


def raised() -> Alert:
    (alert,) = alert_changes({}, [reading(11)], NOON)
    return alert


@pytest.mark.parametrize(("value", "threshold", "is_over"), [(10, 10, False), (11, 10, True), (11, 0, False)])
def test_a_threshold_is_passed_above_it_and_zero_is_off(
    value: float, threshold: float, *, is_over: bool
) -> None:
    assert reading(value, threshold).is_over is is_over


def test_it_is_raised_once() -> None:
    alert = raised()
    assert (alert.is_raised, alert.is_delivered, alert.since) == (True, False, NOON)
    assert alert_changes({"dead_letters": alert}, [reading(99)], LATER) == []


def test_it_changes_again_when_it_clears_and_can_be_raised_anew() -> None:
    (cleared,) = alert_changes({"dead_letters": raised()}, [reading(3)], LATER)
    assert (cleared.is_raised, cleared.value) == (False, 3)
    assert alert_changes({"dead_letters": cleared}, [reading(3)], LATER) == []
    (again,) = alert_changes({"dead_letters": cleared}, [reading(12)], LATER)
    assert again.is_raised
    assert again.id != raised().id


def test_nothing_is_said_while_all_is_well() -> None:
    assert alert_changes({}, [reading(0)], NOON) == []


def test_what_nobody_watches_any_more_is_cleared() -> None:
    (cleared,) = alert_changes({"dead_letters": raised()}, [], LATER)
    assert not cleared.is_raised


def test_an_alert_reads_back_and_names_itself() -> None:
    alert = raised().delivered()
    assert Alert.from_json(alert.to_json()) == alert
    assert alert.document() == {
        "id": "alert-dead_letters-raised-20261121T120000.000000Z",
        "condition": "dead_letters",
        "state": "raised",
        "value": 11,
        "threshold": 10,
        "at": "2026-11-21T12:00:00Z",
    }
