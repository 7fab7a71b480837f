"""What receivers of alerts get: a signed JSON document, or one text as Slack takes it, with their links."""

from typing import Any, Final
from urllib.parse import quote

from durable_retry_console.alerts.rules import Alert

PAGE_URL: Final = "page_url"
RUNBOOK_URL: Final = "runbook_url"
_WORDS: Final = {PAGE_URL: "Look at it", RUNBOOK_URL: "What to do"}


def links_of(alert: Alert, *, dashboard: str | None, runbook: str) -> dict[str, str]:
    """Return where a person looks, as far as it is known: a view of the dashboard, and what to do.

    Args:
        dashboard: The address of the dashboard; None where the app's own is not known.
        runbook: An address, in which `{condition}` stands for the condition; "" for none.
    """
    links = {}
    if dashboard is not None:
        view, name = alert.about.view, quote(alert.dependency or "")
        of = "" if not name else f"/{name}" if view == "circuits" else f"?dependency={name}"
        links[PAGE_URL] = f"{dashboard}#/{view}{of}"
    if runbook:
        links[RUNBOOK_URL] = runbook.replace("{condition}", quote(alert.kind))
    return links


def webhook_message(alert: Alert, links: dict[str, str]) -> dict[str, Any]:
    return alert.document() | links


def slack_message(alert: Alert, links: dict[str, str]) -> dict[str, Any]:
    """Return the body for an incoming webhook of Slack, or of what takes the same: one text."""
    # What Slack reads as markup.
    text = alert.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    named = " ".join(f"<{url}|{_WORDS[name]}>" for name, url in links.items())
    return {"text": f"{'Raised' if alert.is_raised else 'Resolved'}: {text} {named}".rstrip()}
