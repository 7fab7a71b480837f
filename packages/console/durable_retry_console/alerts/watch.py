"""Health metrics and alerts: read the metrics, show them as gauges, send changes of alerts to people.

The cost of a run depends on what is open, pending or configured only. Each part is read by itself: one that
does not answer leaves its alerts as they are, and hides no other.

The last alert of each condition is stored with its messages, so that each is sent once, whatever restarts.

    change ──> row, if no other worker wrote it ──> log, activity
    message due ──> row with one more try ──> post ──> row with the end of the try

A crash after a post leaves the message to the next run, which sends it again under the same id. Two workers
cannot both begin a try: each writes the row under the version that it read.
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from durable_retry.base.names import DeadLetterReason
from durable_retry.circuit.circuits import held_keys
from durable_retry.circuit.entity import CircuitEntity
from durable_retry.features.dead_letter_lists.counts import read_summary
from durable_retry.features.dead_letter_lists.pages import count_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.config.dependency import Dependency
from durable_retry.runtime.concurrency import raise_first, settle_all
from durable_retry.settings.configuration import dependencies
from durable_retry.telemetry.spans import DEPENDENCY
from durable_retry_console.alerts.health import Circuits, HealthMetrics, all_thresholds, seconds_since, show
from durable_retry_console.alerts.rules import STUCK, Alert, alert_changes, with_new_values
from durable_retry_console.alerts.sending import send_alert_to
from durable_retry_console.alerts.settings import ReceiverName, alert_settings
from durable_retry_console.alerts.store import change_alert, known_alerts, remove_old_incidents, write_change
from durable_retry_console.index.health import seconds_without_a_start
from durable_retry_console.optional import of_feature, of_features

_OF_FEATURES: Final = {
    "order": "durable_retry_console.alerts.lanes:blocked_lanes",
    "outbox": "durable_retry_console.alerts.outbox:outbox_lag_seconds",
}
"""Where functions are that measure a feature; each has the name of an attribute of `HealthMetrics`."""


async def read_health_metrics(hub: TaskHub, now: datetime) -> HealthMetrics:
    letters = await _answered_part("dead letters", read_summary(now))
    measures = {measure.__name__: measure for measure in of_features(_OF_FEATURES).values()}
    patience_seconds = alert_settings().alert_not_starting_seconds
    held_operations = of_feature("holding", "durable_retry.features.holding.look:held_operations")
    exhausted, circuits, not_starting, away, stuck, *measured = await asyncio.gather(
        _answered_part("dead letters of the last hour", _retries_exhausted(now)),
        _readable_circuits(hub),
        _answered_part("whether operations begin", seconds_without_a_start(hub, now, patience_seconds)),
        _task_hub_away(hub, now),
        _answered_part("what stands still", _stuck(hub, now)),
        *(_answered_part(name, measure(hub, now, letters)) for name, measure in measures.items()),
    )
    return HealthMetrics(
        dead_letters=letters,
        circuits=circuits,
        now=now,
        retries_exhausted=exhausted,
        not_starting_seconds=not_starting,
        task_hub_away_seconds=away,
        stuck=stuck,
        held={} if held_operations is None else held_operations(hub, now),
        **dict(zip(measures, measured, strict=True)),
    )


# A part that takes longer is not known in this run.
_PART_SECONDS: Final = 30.0


async def _answered_part[T](name: str, part: Awaitable[T]) -> T | None:
    try:
        async with asyncio.timeout(_PART_SECONDS):
            return await part
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not keep the other alerts back
        _log.warning("not known in this run: %s (%s)", name, type(error).__name__)
        return None


# Task hubs that did not answer the last time, and since when; the timer runs on one instance at a time.
_away_since: dict[TaskHub, datetime] = {}


async def _task_hub_away(hub: TaskHub, now: datetime) -> float | None:
    async def answers() -> bool:
        await hub.check()
        return True

    if await _answered_part("the task hub", answers()):
        _away_since.pop(hub, None)
        return 0.0
    seconds = seconds_since(_away_since.setdefault(hub, now), now)
    # A process that began within the outage must not end the incident.
    return seconds if seconds > alert_settings().alert_task_hub_away_seconds else None


async def _retries_exhausted(now: datetime) -> int:
    """Count the dead letters of the last hour whose attempts were used up; 0 when no threshold needs it."""
    if alert_settings().alert_retries_exhausted_per_hour <= 0:
        return 0
    reason = DeadLetterReason.RETRIES_EXHAUSTED.value
    lately = DeadLetterFilter(reason=reason, created_after=now - timedelta(hours=1))
    return await count_dead_letters(lately, one_page=True)


async def _stuck(hub: TaskHub, now: datetime) -> dict[str, datetime]:
    """Return since when each orchestration is due that no nudge moves; none when no threshold needs it."""
    find = of_feature("standstill", "durable_retry.features.standstill.stuck:stuck_instances")
    found = () if find is None or alert_settings().thresholds[STUCK] <= 0 else await find(hub, now)
    return {each.instance_id: each.since for each in found}


async def _readable_circuits(hub: TaskHub) -> dict[str, Circuits | None]:
    async def circuits(dependency: Dependency) -> Circuits | None:
        name = dependency.name
        breaker, why_not = await CircuitEntity(hub, name).readable()
        if why_not is not None:
            _log.warning("the circuit of %s cannot be read: %s", name, why_not, extra={DEPENDENCY: name})
            return None
        of_keys = await held_keys(hub, dependency, breaker)
        return Circuits(breaker, [each for each in of_keys if each.closed_to_calls_since is not None])

    known = {name: each for name, each in dependencies().dependencies.items() if each.circuit.enabled}
    parts = (_answered_part(f"the circuit of {name}", circuits(each)) for name, each in known.items())
    return dict(zip(known, await asyncio.gather(*parts), strict=True))


_log = logging.getLogger(__name__)


async def check_alerts(hub: TaskHub, now: datetime) -> list[Alert]:
    """Check all health metrics, and send what changed; returns the changes that were stored."""
    changes = []
    try:
        health = await read_health_metrics(hub, now)
        show(health)
        known = await known_alerts()
        metrics = health.with_thresholds(all_thresholds())
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
    return replace(found, value=alert.value, names=alert.names) if found.id == alert.id else found


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
