"""Alerts: compare the health metrics with what is raised, and send the changes to people.

The last alert of each condition is stored with its messages, so that each is sent once, whatever restarts.

    change ──> row, if no other worker wrote it ──> log, activity
    message due ──> row with one more try ──> post ──> row with the end of the try

A crash after a post leaves the message to the next run, which sends it again under the same id. Two workers
cannot both begin a try: each writes the row under the version that it read.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

from durable_retry.hub.task_hub import TaskHub
from durable_retry.runtime.concurrency import raise_first, settle_all
from durable_retry_console.alerts.health import look_at_health
from durable_retry_console.alerts.rules import Alert, alert_changes, with_new_values
from durable_retry_console.alerts.sending import send_alert_to
from durable_retry_console.alerts.settings import ReceiverName, alert_settings
from durable_retry_console.alerts.store import change_alert, known_alerts, remove_old_incidents, write_change

_log = logging.getLogger(__name__)


async def check_alerts(hub: TaskHub, now: datetime) -> list[Alert]:
    """Check all health metrics, and send what changed; returns the changes that were stored."""
    changes = []
    try:
        metrics = list((await look_at_health(hub, now)).metrics.values())
        known = await known_alerts()
        for alert in with_new_values(known, metrics):
            await change_alert(alert.condition, partial(_with_values_of, alert))
        for alert in alert_changes(known, metrics, now):
            if await write_change(alert, known.get(alert.condition)):
                changes.append(alert)
                _log_alert(alert)
        if changes:
            await remove_old_incidents()
    finally:
        await _send_due_alerts(now)
    return changes


def _log_alert(alert: Alert) -> None:
    level = logging.WARNING if alert.is_raised else logging.INFO
    values = (alert.condition, alert.state, alert.value, alert.threshold)
    extra = {f"durable_retry.alert.{name}": value for name, value in alert.document().items()}
    _log.log(level, "alert %s %s: %s, threshold %s", *values, extra=extra)


def _with_values_of(alert: Alert, found: Alert) -> Alert:
    is_same = found.id == alert.id
    return replace(found, value=alert.value, names=alert.names, why=alert.why) if is_same else found


# The time for the messages of one run to one receiver; the next run sends the rest.
_RUN_SECONDS: Final = 15.0


async def _send_due_alerts(now: datetime) -> None:
    # Only storage can make this fail.
    receivers = alert_settings().receivers
    if not receivers:
        return
    alerts = (await known_alerts()).values()

    async def send(receiver: ReceiverName) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_RUN_SECONDS):
                # What was tried least comes first: a message that hangs must not keep the others waiting.
                for alert in sorted(alerts, key=lambda alert: alert.tries_of(receiver)):
                    if alert.is_due(receiver, now):
                        await _send_alert(alert, receiver, now)

    # Each receiver has the time for itself: one that hangs keeps only its own messages waiting.
    raise_first((await settle_all(send, receivers, len(receivers)))[1])


async def _send_alert(alert: Alert, receiver: ReceiverName, now: datetime) -> None:
    def begin(known: Alert) -> Alert:
        is_due = known.id == alert.id and known.is_due(receiver, now)
        return known.trying(receiver, now) if is_due else known

    if not await change_alert(alert.condition, begin):
        return
    failure = await send_alert_to(alert, receiver, now)
    if failure is not None:
        _log.warning("the alert %s did not reach %s: %s", alert.id, receiver, failure.detail)
    await change_alert(
        alert.condition, lambda known: known.tried(receiver, failure) if known.id == alert.id else known
    )
