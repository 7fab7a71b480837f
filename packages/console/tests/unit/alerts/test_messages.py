"""What receivers of alerts get."""

import pytest

from durable_retry_console.alerts.messages import (
    AlertLinks,
    links_of,
    slack_message,
    teams_message,
    webhook_message,
)
from durable_retry_console.alerts.rules import Alert, HealthMetric, alert_changes
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
    ],
)
def test_an_alert_leads_to_the_view_of_its_condition_and_to_the_runbook(condition: str, view: str) -> None:
    links = links_of(raised(condition), dashboard="https://a/d", runbook="https://wiki/{condition}")
    assert links.page == f"https://a/d#/{view}"
    assert links.runbook == f"https://wiki/{condition.partition(':')[0]}"


def test_a_webhook_gets_the_links_that_are_known() -> None:
    assert links_of(raised(), dashboard=None, runbook="") == AlertLinks()
    assert webhook_message(raised(), AlertLinks()) == raised().document()
    message = webhook_message(raised(), AlertLinks(page="https://a/d", runbook="https://wiki"))
    assert (message["page_url"], message["runbook_url"]) == ("https://a/d", "https://wiki")


def test_slack_gets_blocks_and_a_text_for_the_notification() -> None:
    (alert,) = alert_changes({}, [HealthMetric("circuit_open_seconds:a&b", 42, 10)], NOON)
    message = slack_message(alert, AlertLinks(page="https://app.example.com/api/dashboard#/alerts"))
    text = "Circuit open, a&amp;b: 42 s, over the threshold of 10 s."
    assert message["text"] == f"Raised: {text}"
    section, context = message["blocks"]
    assert section["text"] == {"type": "mrkdwn", "text": f":rotating_light: *Raised*: {text}"}
    assert context["elements"][0]["text"].endswith(
        "<https://app.example.com/api/dashboard#/alerts|Look at it>"
    )


def test_slack_gets_no_link_where_the_address_is_not_known() -> None:
    (cleared,) = alert_changes({"dead_letters": raised()}, [], LATER)
    message = slack_message(cleared, AlertLinks())
    assert message["text"].startswith("Resolved: ")
    assert message["blocks"][1]["elements"][0]["text"] == "raised 2026-11-21T12:00:00Z"


def test_teams_gets_an_adaptive_card() -> None:
    message = teams_message(raised(), AlertLinks(page="https://app.example.com/", runbook="https://wiki/run"))
    (attachment,) = message["attachments"]
    card = attachment["content"]
    assert (message["type"], attachment["contentType"]) == (
        "message",
        "application/vnd.microsoft.card.adaptive",
    )
    assert (card["type"], card["body"][0]["text"]) == ("AdaptiveCard", "Raised: Open dead letters")
    assert card["actions"] == [
        {"type": "Action.OpenUrl", "title": "Look at it", "url": "https://app.example.com/"},
        {"type": "Action.OpenUrl", "title": "What to do", "url": "https://wiki/run"},
    ]
    (cleared,) = alert_changes({"dead_letters": raised()}, [], LATER)
    assert "actions" not in teams_message(cleared, AlertLinks())["attachments"][0]["content"]
