"""What receivers of alerts get."""

import pytest

from durable_retry_console.alerts.rules import (
    Alert,
    HealthMetric,
    alert_changes,
    links_of,
    slack_message,
    webhook_message,
)
from tests.support.builders import NOON, after

LATER = after(60)


def raised(condition: str = "dead_letters") -> Alert:
    (alert,) = alert_changes({}, [HealthMetric(condition, 101, 100)], NOON)
    return alert


@pytest.mark.parametrize(
    ("condition", "view"),
    [
        ("dead_letters", "dead-letters"),
        ("dead_letters:pay ments", "dead-letters?dependency=pay%20ments"),
        ("outbox_lag_seconds", "outbox"),
        ("circuit_open_seconds:payments", "circuits/payments"),
        ("lane_blocked_seconds", "lanes?blocked=true"),
        ("not_starting", "alerts"),
        ("held", "operations?status=paused"),
    ],
)
def test_an_alert_leads_to_the_view_of_its_condition_and_to_the_runbook(condition: str, view: str) -> None:
    links = links_of(raised(condition), dashboard="https://a/d", runbook="https://wiki/{condition}")
    runbook = f"https://wiki/{condition.partition(':')[0]}"
    assert links == {"page_url": f"https://a/d#/{view}", "runbook_url": runbook}


def test_a_webhook_gets_the_links_that_are_known() -> None:
    assert links_of(raised(), dashboard=None, runbook="") == {}
    assert webhook_message(raised(), {}) == raised().document()
    links = {"page_url": "https://a/d", "runbook_url": "https://wiki"}
    assert webhook_message(raised(), links) == raised().document() | links


def test_slack_gets_one_text_with_its_markup_escaped_and_the_links_that_are_known() -> None:
    (alert,) = alert_changes({}, [HealthMetric("circuit_open_seconds:a&b", 42, 10)], NOON)
    links = {"page_url": "https://a/d#/alerts", "runbook_url": "https://wiki"}
    assert slack_message(alert, links) == {
        "text": "Raised: Circuit not closed, a&amp;b: 42 s, over the threshold of 10 s. "
        "<https://a/d#/alerts|Look at it> <https://wiki|What to do>"
    }
    (cleared,) = alert_changes({"dead_letters": raised()}, [], LATER)
    assert slack_message(cleared, {}) == {
        "text": "Resolved: Open dead letters: 0, no longer over the threshold of 100, after 1 min."
    }
