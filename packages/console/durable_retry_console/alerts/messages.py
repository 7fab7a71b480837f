"""What receivers of alerts get: a JSON document, blocks of Slack, a card of Teams, each with its links."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from durable_retry.engine.base.instants import to_rfc3339
from durable_retry_console.alerts.rules import (
    CIRCUIT_OPEN,
    DEAD_LETTER_AGE,
    DEAD_LETTERS,
    LANE_BLOCKED,
    OUTBOX_LAG,
    RETRIES_EXHAUSTED,
    Alert,
)

_VIEWS: Final = {
    DEAD_LETTERS: "dead-letters",
    DEAD_LETTER_AGE: "dead-letters",
    RETRIES_EXHAUSTED: "dead-letters",
    OUTBOX_LAG: "outbox",
    CIRCUIT_OPEN: "circuits",
    LANE_BLOCKED: "lanes?blocked=true",
}
"""The view of the dashboard about a condition; that of alerts for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertLinks:
    """Where a person looks; None for what is not known.

    Attributes:
        page: The view of the dashboard about the condition.
        runbook: What to do.
    """

    page: str | None = None
    runbook: str | None = None

    def named(self) -> Iterator[tuple[str, str]]:
        """Yield the words and the address of each link."""
        if self.page is not None:
            yield "Look at it", self.page
        if self.runbook is not None:
            yield "What to do", self.runbook


def links_of(alert: Alert, *, dashboard: str | None, runbook: str) -> AlertLinks:
    """Return the links of an alert.

    Args:
        dashboard: The address of the dashboard; None where the app's own is not known.
        runbook: An address, in which `{condition}` stands for the condition; "" for none.
    """
    page = None
    if dashboard is not None:
        view = _VIEWS.get(alert.kind, "alerts")
        of = "" if alert.dependency is None else f"/{quote(alert.dependency)}"
        if view != "circuits":
            of = "" if alert.dependency is None else f"?dependency={quote(alert.dependency)}"
        page = f"{dashboard}#/{view}{of}"
    return AlertLinks(page=page, runbook=runbook.replace("{condition}", quote(alert.kind)) or None)


def webhook_message(alert: Alert, links: AlertLinks) -> dict[str, Any]:
    """Return the body for a webhook: the document, with the links that are known."""
    urls = {"page_url": links.page, "runbook_url": links.runbook}
    return alert.document() | {name: url for name, url in urls.items() if url is not None}


def slack_message(alert: Alert, links: AlertLinks) -> dict[str, Any]:
    """Return the body for a Slack incoming webhook: blocks, and the text that notifications show."""
    mark = ":rotating_light: *Raised*" if alert.is_raised else ":white_check_mark: *Resolved*"
    text = _slack_text(alert.text)
    about = f"raised {to_rfc3339(alert.raised_at)}"
    about += "".join(f" · <{url}|{words}>" for words, url in links.named())
    return {
        "text": f"{'Raised' if alert.is_raised else 'Resolved'}: {text}",
        "blocks": [
            {"type": "section", "text": {"type": "mrkdwn", "text": f"{mark}: {text}"}},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": about}]},
        ],
    }


def teams_message(alert: Alert, links: AlertLinks) -> dict[str, Any]:
    """Return the body for a Teams workflow "post to a channel when a webhook request is received"."""
    title, colour = ("Raised", "Attention") if alert.is_raised else ("Resolved", "Good")
    block = {"type": "TextBlock", "wrap": True}
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            {**block, "text": f"{title}: {alert.title}", "weight": "Bolder", "color": colour},
            {**block, "text": alert.text},
            {"type": "FactSet", "facts": [{"title": "Raised", "value": to_rfc3339(alert.raised_at)}]},
        ],
    }
    actions = [{"type": "Action.OpenUrl", "title": words, "url": url} for words, url in links.named()]
    if actions:
        card["actions"] = actions
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return {"type": "message", "attachments": [attachment]}


def _slack_text(text: str) -> str:
    # What Slack reads as markup.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
