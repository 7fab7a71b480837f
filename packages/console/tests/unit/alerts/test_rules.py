from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from durable_retry_console.alerts.rules import (
    MAX_TRIES,
    TEST,
    Alert,
    AlertDelivery,
    DeliveryState,
    Failure,
    HealthMetric,
    alert_changes,
    with_new_values,
)
from tests.support.builders import NOON

LATER = NOON + timedelta(minutes=1)


def reading(value: float, threshold: float = 10) -> HealthMetric:
    return HealthMetric("dead_letters", value, threshold)


def raised() -> Alert:
    (alert,) = alert_changes({}, [reading(11)], NOON)
    return alert


@pytest.mark.parametrize(
    ("value", "threshold", "is_exceeded"), [(10, 10, False), (11, 10, True), (11, 0, False)]
)
def test_a_threshold_is_passed_above_it_and_zero_is_off(
    value: float, threshold: float, *, is_exceeded: bool
) -> None:
    assert reading(value, threshold).is_exceeded is is_exceeded


def test_it_is_raised_once() -> None:
    alert = raised()
    assert (alert.is_raised, alert.raised_at, alert.since) == (True, NOON, NOON)
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


def test_a_condition_that_could_not_be_read_stays_as_it_is() -> None:
    unknown = [HealthMetric("dead_letters", None, 10)]
    assert alert_changes({}, unknown, NOON) == []
    assert alert_changes({"dead_letters": raised()}, unknown, LATER) == []


def test_an_alert_reads_back_and_names_itself() -> None:
    alert = raised().trying("slack", NOON)
    assert Alert.from_json(alert.to_json()) == alert
    assert alert.document() == {
        "id": "alert-dead_letters-raised-20261121T120000.000000Z",
        "incident_id": "alert-dead_letters-20261121T120000.000000Z",
        "condition": "dead_letters",
        "dependency": None,
        "state": "raised",
        "value": 11,
        "threshold": 10,
        "text": "Open dead letters: 11, over the threshold of 10.",
        "raised_at": "2026-11-21T12:00:00Z",
        "at": "2026-11-21T12:00:00Z",
    }


@pytest.mark.parametrize(
    ("condition", "seconds", "text"),
    [
        (
            "circuit_open_seconds:payments",
            42,
            "Circuit not closed, payments: 42 s, over the threshold of 10 s.",
        ),
        (
            "retries_exhausted_per_hour",
            1_998,
            "Operations whose retries were exhausted in an hour: at least 1,998, over the threshold of 10.",
        ),
        (
            "outbox_lag_seconds",
            90,
            "Age of the oldest event that is not sent: 1 min, over the threshold of 10 s.",
        ),
        (
            "dead_letter_age_seconds",
            7_500,
            "Age of the oldest open dead letter: 2 h 5 min, over the threshold of 10 s.",
        ),
    ],
)
def test_the_text_is_for_a_person(condition: str, seconds: float, text: str) -> None:
    (alert,) = alert_changes({}, [HealthMetric(condition, seconds, 10)], NOON)
    assert alert.text == text


def due(alert: Alert, now: datetime) -> list[str]:
    return [receiver for receiver in ("slack", "webhook") if alert.is_due(receiver, now)]


def test_a_message_is_due_once_and_then_when_its_try_failed() -> None:
    alert = raised()
    assert due(alert, NOON) == ["slack", "webhook"]
    begun = alert.trying("slack", NOON)
    assert (begun.tries_of("slack"), begun.tries_of("webhook")) == (1, 0)
    assert due(begun, NOON) == ["webhook"]
    begun = begun.trying("webhook", NOON)
    assert due(begun, NOON) == []
    ended = begun.tried("slack", None).tried("webhook", Failure("it answered 503"))
    assert due(ended, LATER) == ["webhook"]
    assert ended.deliveries["webhook"].detail == "it answered 503"


@pytest.mark.parametrize(
    ("tries", "failure"),
    [(MAX_TRIES, Failure("it answered 503")), (1, Failure("it answered 404", is_final=True))],
)
def test_a_message_is_given_up(tries: int, failure: Failure) -> None:
    alert = raised()
    for _ in range(tries):
        alert = alert.trying("slack", NOON)
    ended = alert.tried("slack", failure)
    assert ended.deliveries["slack"].state is DeliveryState.FAILED
    assert not ended.is_due("slack", LATER)


def test_the_end_is_for_those_who_were_sent_the_beginning() -> None:
    alert = raised().trying("slack", NOON).tried("slack", None)
    (cleared,) = alert_changes({"dead_letters": alert}, [reading(3)], LATER)
    assert cleared.deliveries == {"slack": AlertDelivery()}
    assert due(cleared, LATER) == ["slack"]
    assert cleared.text == "Open dead letters: 3, no longer over the threshold of 10, after 1 min."
    assert (cleared.raised_at, cleared.state) == (NOON, "cleared")


def test_a_raised_alert_whose_value_moves_is_told_with_the_value_of_the_moment() -> None:
    known = {"dead_letters": raised()}
    moved = HealthMetric("dead_letters", 400, 100, why="all of one cause")
    metrics = [moved, HealthMetric("outbox_lag_seconds", 400, 100)]
    new = replace(known["dead_letters"], value=400.0, why="all of one cause")
    assert list(with_new_values(known, metrics)) == [new]
    assert new.text == "Open dead letters: 400, over the threshold of 10. All of one cause."
    for value in (known["dead_letters"].value, None):
        assert list(with_new_values(known, [HealthMetric("dead_letters", value, 10)])) == []


def test_a_test_says_that_nothing_is_wrong() -> None:
    alert = Alert(condition=TEST, is_raised=True, since=NOON, value=0, threshold=0, raised_at=NOON)
    assert (alert.title, "nothing is wrong" in alert.text) == ("Test", True)


def test_an_alert_of_a_circuit_names_the_limit_keys_that_it_is_open_for() -> None:
    keys = tuple(f"customer-{number}" for number in range(7))
    metric = HealthMetric("circuit_open_seconds:warehouse", 400, 300, keys)
    (alert,) = alert_changes({}, [metric], NOON)
    named = "customer-0, customer-1, customer-2, customer-3, customer-4 and 2 more"
    assert alert.title == f"Circuit not closed, warehouse ({named})"
    cleared = replace(metric, value=0.0, names=None)
    (ended,) = alert_changes({metric.condition: alert}, [cleared], LATER)
    assert (ended.is_raised, ended.title) == (False, alert.title)
    assert ended.text == f"Circuit closed again, warehouse ({named}). It was open for about 6 min."
    (few,) = with_new_values({metric.condition: alert}, [replace(metric, names=keys[:1])])
    assert few.title == "Circuit not closed, warehouse (customer-0)"


def test_a_credential_that_is_no_longer_refused_says_for_how_long_it_was() -> None:
    metric = HealthMetric("credential_refused_seconds:crm", 90, 60)
    (alert,) = alert_changes({}, [metric], NOON)
    (ended,) = alert_changes({metric.condition: alert}, [replace(metric, value=0.0)], LATER)
    assert ended.text == "Credential no longer refused, crm. It was refused for about 2 min."


def test_an_alert_of_what_stands_still_names_it_and_says_what_to_do() -> None:
    metric = HealthMetric("stuck_seconds", 300, 180, ("op-1", "batch-2"))
    (alert,) = alert_changes({}, [metric], NOON)
    assert alert.text == (
        "Orchestrations do not go on (op-1, batch-2): 5 min, over the threshold of "
        "3 min. Restart the host, and terminate those that still do not: "
        "what had begun becomes a dead letter."
    )
