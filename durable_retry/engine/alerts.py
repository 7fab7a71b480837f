"""Alerts: raised once when a metric exceeds its threshold, cleared once when it no longer does."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Self

from durable_retry.engine.base.json_forms import Form, JsonRecord, to_rfc3339


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Above these values an alert is raised; 0 switches one off.

    Attributes:
        dead_letters: Number of open dead letters.
        dead_letter_age_seconds: Age of the oldest open dead letter.
        outbox_lag_seconds: Age of the oldest event that is not sent yet.
        circuit_open_seconds: How long a circuit has let no call through.
    """

    dead_letters: float = 100.0
    dead_letter_age_seconds: float = 86_400.0
    outbox_lag_seconds: float = 300.0
    circuit_open_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class HealthMetric:
    """One metric that has a threshold, and its present value.

    Attributes:
        condition: Its name: `dead_letters`, `dead_letter_age_seconds`, `outbox_lag_seconds`, or
            `circuit_open_seconds:` and the dependency.
        value: In the unit that the name ends in.
        threshold: See `Thresholds`.
    """

    condition: str
    value: float
    threshold: float

    @property
    def is_over(self) -> bool:
        """Whether the value exceeds the threshold."""
        return 0 < self.threshold < self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert(JsonRecord):
    """The latest change of one condition.

    Attributes:
        condition: See `HealthMetric`.
        is_raised: True for raised, False for cleared.
        since: When it changed.
        value: Of the metric at that instant.
        threshold: At that instant.
        is_delivered: Whether the log and the webhook have it; stored as `is_told`.
    """

    condition: str
    is_raised: bool
    since: datetime
    value: float
    threshold: float
    is_delivered: Annotated[bool, Form(name="is_told")] = False

    @property
    def id(self) -> str:
        """The id of this change, for receivers that deduplicate."""
        state = "raised" if self.is_raised else "cleared"
        return f"alert-{self.condition}-{state}-{self.since:%Y%m%dT%H%M%S.%fZ}"

    def delivered(self) -> Self:
        """Return the alert marked as delivered."""
        return replace(self, is_delivered=True)

    def document(self) -> dict[str, Any]:
        """Return the body of the log line and the webhook."""
        return {
            "id": self.id,
            "condition": self.condition,
            "state": "raised" if self.is_raised else "cleared",
            "value": self.value,
            "threshold": self.threshold,
            "at": to_rfc3339(self.since),
        }


def alert_changes(known: Mapping[str, Alert], metrics: Iterable[HealthMetric], now: datetime) -> list[Alert]:
    """Return the changes since the known alerts: conditions now over their threshold, and no longer.

    Args:
        known: The latest alert of each condition.
        metrics: The present values. A raised condition that is missing here is cleared: it is not measured
            any more.
        now: Aware UTC.
    """
    changes = []
    by_condition = {metric.condition: metric for metric in metrics}
    for condition, metric in by_condition.items():
        last = known.get(condition)
        if metric.is_over is not (last is not None and last.is_raised):
            changes.append(_alert(metric, now))
    # A condition that is not measured any more would stay raised for ever.
    for condition, last in known.items():
        if last.is_raised and condition not in by_condition:
            changes.append(_alert(HealthMetric(condition, 0.0, last.threshold), now))
    return changes


def _alert(metric: HealthMetric, now: datetime) -> Alert:
    return Alert(
        condition=metric.condition,
        is_raised=metric.is_over,
        since=now,
        value=metric.value,
        threshold=metric.threshold,
    )
