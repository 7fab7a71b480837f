"""Health metrics and alerts: read the metrics, show them as gauges, report changes of alerts.

The cost of a run depends on what is open, pending or configured only.

The last alert of each condition is stored, so that a change is reported once.

    change ──> row `is_told` false ──> log and webhook ──> row `is_told` true

A crash in between leaves `is_told` false; the next run reports the same alert again under the same id, and
the webhook's receiver deduplicates on it.
"""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from durable_retry.engine.alerts import Alert, HealthMetric, Thresholds, alert_changes
from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.circuit import Breaker, CircuitState
from durable_retry.engine.operations.operation import ScopedKey
from durable_retry.engine.operations.request import ParsedEnvelope
from durable_retry.services.submit import Naming, parse, resolve, submit
from durable_retry.settings.configuration import dependencies
from durable_retry.settings.maintenance import Webhook, maintenance_settings
from durable_retry.stores import tables
from durable_retry.stores.circuit import CircuitEntity
from durable_retry.stores.dead_letters.index import Summary, quoted, read_summary
from durable_retry.stores.outbox_index import list_notes
from durable_retry.stores.task_hub import TaskHubUnavailableError
from durable_retry.telemetry import metrics
from durable_retry.telemetry.spans import CIRCUIT_STATE, DEPENDENCY, QUEUE, dependency_label

TABLE: Final = "Alerts"

_PARTITION: Final = "alert"


async def known_alerts() -> dict[str, Alert]:
    """Return the last alert of each condition, by condition."""
    page = await tables.rows_between(TABLE, _PARTITION)
    alerts = (Alert.from_json(json.loads(row["alert"])) for row in page.rows)
    return {alert.condition: alert for alert in alerts}


async def write_alert(alert: Alert) -> None:
    """Store the present alert of a condition."""
    row = {
        "PartitionKey": _PARTITION,
        "RowKey": quoted(alert.condition),
        "alert": json.dumps(alert.to_json()),
    }
    await tables.merge(TABLE, row)


_CLOSED_TO_CALLS: Final = frozenset({CircuitState.OPEN, CircuitState.FORCED_OPEN, CircuitState.HALF_OPEN})
"""Half-open counts as closed to calls: a dependency that is down gets there again and again."""

_MANY_NOTES: Final = 999


@dataclass(frozen=True, slots=True)
class HealthMetrics:
    """The health metrics at one instant.

    Attributes:
        dead_letters: The open ones.
        outbox_lag_seconds: Age of the oldest pending event; 0 when none is pending.
        circuits: By dependency, of those with a circuit.
        now: When they were read.
    """

    dead_letters: Summary
    outbox_lag_seconds: float
    circuits: Mapping[str, Breaker]
    now: datetime

    def with_thresholds(self, thresholds: Thresholds) -> list[HealthMetric]:
        """Return each metric with its threshold."""
        waiting = self.dead_letters.total
        return [
            HealthMetric("dead_letters", float(waiting.count), thresholds.dead_letters),
            HealthMetric(
                "dead_letter_age_seconds", self.dead_letter_age_seconds, thresholds.dead_letter_age_seconds
            ),
            HealthMetric("outbox_lag_seconds", self.outbox_lag_seconds, thresholds.outbox_lag_seconds),
            *(
                HealthMetric(
                    f"circuit_open_seconds:{name}",
                    self._open_seconds(breaker),
                    thresholds.circuit_open_seconds,
                )
                for name, breaker in self.circuits.items()
            ),
        ]

    @property
    def dead_letter_age_seconds(self) -> float:
        """Age of the oldest open dead letter; 0 when there is none."""
        return _seconds(self.dead_letters.total.oldest_at, self.now)

    def _open_seconds(self, breaker: Breaker) -> float:
        return _seconds(breaker.opened_at if breaker.state in _CLOSED_TO_CALLS else None, self.now)


async def read_health_metrics(hub: str, now: datetime) -> HealthMetrics:
    """Read the health metrics.

    Args:
        hub: Configuration of the durable client.
        now: Aware UTC instant.

    Raises:
        TaskHubUnavailableError: A circuit could not be read.
    """
    letters, lag_seconds, circuits = await asyncio.gather(read_summary(), _outbox(now), _circuits(hub))
    return HealthMetrics(letters, lag_seconds, circuits, now)


async def _outbox(now: datetime) -> float:
    """Return the lag of the outbox, from its first 999 notes."""
    notes, _ = await list_notes(_MANY_NOTES, None)
    return _seconds(min((note.noted_at for note in notes), default=None), now)


async def _circuits(hub: str) -> dict[str, Breaker]:
    names = [one.name for one in dependencies().dependencies.values() if one.circuit.enabled]
    breakers = await asyncio.gather(*(CircuitEntity(hub, name).read() for name in names))
    return dict(zip(names, breakers, strict=True))


def _seconds(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


SOURCE: Final = "watch"

_log = logging.getLogger(__name__)


async def check_alerts(hub: str, now: datetime) -> list[Alert]:
    """Check all health metrics and report changed alerts; returns the alerts that were reported.

    Raises:
        TaskHubUnavailableError: A metric could not be read, or the webhook's operation not be started. The
            next run reports what this one did not.
    """
    settings = maintenance_settings()
    health = await read_health_metrics(hub, now)
    show(health)
    known = await known_alerts()
    for alert in alert_changes(known, health.with_thresholds(settings.thresholds), now):
        await write_alert(alert)
        known[alert.condition] = alert
    unreported = [alert for alert in known.values() if not alert.is_delivered]
    for alert in unreported:
        await _report(hub, alert, settings.webhook, now)
        await write_alert(alert.delivered())
    return unreported


async def _report(hub: str, alert: Alert, webhook: Webhook | None, now: datetime) -> None:
    document = alert.document()
    level = logging.WARNING if alert.is_raised else logging.INFO
    _log.log(
        level,
        "alert %s %s: %s, threshold %s",
        alert.condition,
        document["state"],
        alert.value,
        alert.threshold,
        extra={f"durable_retry.alert.{name}": value for name, value in document.items()},
    )
    if webhook is not None:
        await _send(hub, alert, webhook, now)


async def _send(hub: str, alert: Alert, webhook: Webhook, now: datetime) -> None:
    """Send an alert as an operation, retried like any other and deduplicated by the alert's id.

    Raises:
        TaskHubUnavailableError: It could not be started.
    """
    call = {"method": "POST", "path": webhook.path, "json": alert.document()}
    document = {"dependency": webhook.dependency, "request": call}
    try:
        naming = Naming(own=ScopedKey(f"source:{SOURCE}", alert.id))
        await submit(hub, resolve(parse(ParsedEnvelope(document), naming), source=SOURCE, now=now))
    except InvalidInputError as error:
        _log.error("ALERT_WEBHOOK cannot be used: %s", error)
    except TaskHubUnavailableError:
        _log.warning("the next run reports the alert %s again", alert.id)
        raise


def show(health: HealthMetrics) -> None:
    """Publish the metrics as gauges."""
    metrics.show_gauges(
        {
            metrics.DEAD_LETTERS.name: list(_dead_letters(health)),
            metrics.DEAD_LETTER_AGE.name: [(health.dead_letter_age_seconds, {})],
            metrics.OUTBOX_LAG.name: [(health.outbox_lag_seconds, {})],
            metrics.CIRCUIT_STATUS.name: list(_circuit_states(health)),
        }
    )


def _dead_letters(health: HealthMetrics) -> Iterator[metrics.GaugeValue]:
    """Count by configured dependency. Names from messages are never labels: their number is unbounded."""
    counts = dict.fromkeys((*dependencies().dependencies, QUEUE, ""), 0)
    for name, waiting in health.dead_letters.by_dependency.items():
        label = dependency_label(name)
        counts[label if label in counts else ""] += waiting.count
    for name, count in counts.items():
        yield count, {DEPENDENCY: name} if name else {}


def _circuit_states(health: HealthMetrics) -> Iterator[metrics.GaugeValue]:
    for name, breaker in health.circuits.items():
        for state in CircuitState:
            yield int(breaker.state is state), {DEPENDENCY: name, CIRCUIT_STATE: state.value}
