"""What people see of alerts, and a test of those who receive them."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field

from durable_retry.base.answers import Answer, Instant, left_out
from durable_retry.runtime import clock
from durable_retry_console.alerts.health import all_thresholds
from durable_retry_console.alerts.rules import RUNBOOK_URL, TEST, Alert, AlertDelivery, DeliveryState
from durable_retry_console.alerts.sending import links_to, send_alert_to
from durable_retry_console.alerts.settings import alert_settings
from durable_retry_console.alerts.store import known_alerts, list_incidents


class AlertMessage(Answer):
    """A message to one receiver."""

    receiver: str
    about: Literal["raised", "cleared"]
    state: DeliveryState
    tries: int
    detail: str | None


class AlertDocument(Answer):
    """One incident of a condition."""

    condition: str
    dependency: str | None
    title: str
    text: str
    state: Literal["raised", "cleared"]
    value: float
    threshold: float
    raised_at: Instant
    cleared_at: Instant | None
    deliveries: tuple[AlertMessage, ...]
    runbook_url: str | None = left_out("What to do. Left out without `ALERT_RUNBOOK_URL`.")


class AlertReceiver(Answer):
    """Where alerts are sent, without its path."""

    receiver: Literal["webhook", "slack"]
    host: str


class AlertBoard(Answer):
    """Everything about alerts."""

    items: tuple[AlertDocument, ...] = Field(description="Those that are raised, the newest first.")
    recent: tuple[AlertDocument, ...] = Field(description="The latest incidents that ended.")
    receivers: tuple[AlertReceiver, ...]
    thresholds: dict[str, float] = Field(
        description="By condition, with `:` and a dependency where it has its own; 0 is off."
    )
    next_cursor: None = None


class AlertTest(Answer):
    """What became of a message that was sent to try a receiver."""

    receiver: Literal["webhook", "slack"]
    state: DeliveryState
    detail: str | None = Field(description="Why it did not arrive; null when it did.")


class AlertTests(Answer):
    """What became of a test, receiver by receiver."""

    condition: Literal["test"] = Field(description="What the messages are about.")
    items: tuple[AlertTest, ...]


async def read_board() -> AlertBoard:
    """Return what is raised, what was lately, the receivers and the thresholds."""
    raised, incidents = await asyncio.gather(raised_alerts(), list_incidents())
    return AlertBoard(
        items=raised,
        recent=_documents(alert for alert in incidents if not alert.is_raised),
        receivers=tuple(
            AlertReceiver(receiver=name, host=urlsplit(url.reveal()).hostname or "")
            for name, url in alert_settings().receivers.items()
        ),
        thresholds=all_thresholds(),
    )


async def try_receivers() -> AlertTests:
    """Send a message to every receiver at once, and say what became of it."""
    now = clock.now()
    alert = Alert(condition=TEST, is_raised=True, since=now, value=0.0, threshold=0.0, raised_at=now)
    receivers = alert_settings().receivers
    failures = await asyncio.gather(*(send_alert_to(alert, name, now) for name in receivers))
    return AlertTests(
        items=tuple(
            AlertTest(
                receiver=name,
                state=DeliveryState.SENT if failure is None else DeliveryState.FAILED,
                detail=None if failure is None else failure.detail,
            )
            for name, failure in zip(receivers, failures, strict=True)
        ),
        condition=TEST,
    )


async def raised_alerts() -> tuple[AlertDocument, ...]:
    raised = (alert for alert in (await known_alerts()).values() if alert.is_raised)
    return _documents(sorted(raised, key=lambda alert: alert.since, reverse=True))


def _documents(alerts: Iterable[Alert]) -> tuple[AlertDocument, ...]:
    return tuple(
        AlertDocument.taken_from(
            alert,
            cleared_at=None if alert.is_raised else alert.since,
            deliveries=(
                *_messages("raised", alert.deliveries if alert.is_raised else alert.raised_deliveries),
                *_messages("cleared", {} if alert.is_raised else alert.deliveries),
            ),
            runbook_url=links_to(alert).get(RUNBOOK_URL),
        )
        for alert in alerts
    )


def _messages(
    about: Literal["raised", "cleared"], deliveries: Mapping[str, AlertDelivery]
) -> tuple[AlertMessage, ...]:
    return tuple(
        AlertMessage.taken_from(delivery, receiver=receiver, about=about)
        for receiver, delivery in sorted(deliveries.items())
    )
