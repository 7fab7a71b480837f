"""Alerts: raised once when a metric exceeds its threshold, cleared once when it no longer does.

    raised ──> a message to each receiver ──> cleared ──> a message to each that was sent the first one

The clearing message closes the incident at the receiver. Each message is tried a bounded number of times.
Whom to wake, and when not to, is the receiver's part.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Self
from urllib.parse import quote

from durable_retry.base.json_forms import JsonShape, to_rfc3339
from durable_retry.base.text import names_text

DEAD_LETTERS: Final = "dead_letters"
DEAD_LETTER_AGE: Final = "dead_letter_age_seconds"
OUTBOX_LAG: Final = "outbox_lag_seconds"
CIRCUIT_OPEN: Final = "circuit_open_seconds"
PAUSED: Final = "paused_seconds"
CREDENTIAL_REFUSED: Final = "credential_refused_seconds"
RETRIES_EXHAUSTED: Final = "retries_exhausted_per_hour"
STUCK: Final = "stuck_seconds"
LANE_BLOCKED: Final = "lane_blocked_seconds"
NOT_STARTING: Final = "not_starting"
TASK_HUB_AWAY: Final = "task_hub_away_seconds"
HELD: Final = "held"
LACKING: Final = "lacking_seconds"
TEST: Final = "test"
"""The condition of a message that somebody sends to try the receivers."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What an alert is raised for."""

    title: str  # what is measured, for a person
    view: str = "alerts"  # the view of the dashboard about it
    what_to_do: str = ""  # said while it is raised
    # How its end is told, and what it was until then; None where its value tells that.
    over: tuple[str, str] | None = None


CONDITIONS: Final[Mapping[str, Condition]] = {
    DEAD_LETTERS: Condition("Open dead letters", "dead-letters"),
    DEAD_LETTER_AGE: Condition("Age of the oldest open dead letter", "dead-letters"),
    OUTBOX_LAG: Condition("Age of the oldest event that is not sent", "outbox"),
    CIRCUIT_OPEN: Condition("Circuit not closed", "circuits", over=("Circuit closed again", "open")),
    PAUSED: Condition("Paused at its own request", "circuits", over=("Pause over", "paused")),
    CREDENTIAL_REFUSED: Condition(
        "Credential refused",
        "circuits",
        " Its operations wait, lose no attempt, and go on once a new one works.",
        ("Credential no longer refused", "refused"),
    ),
    RETRIES_EXHAUSTED: Condition("Operations whose retries were exhausted in an hour", "dead-letters"),
    NOT_STARTING: Condition("Accepted operations do not begin"),
    STUCK: Condition(
        "Orchestrations do not go on",
        what_to_do=" Restart the host, and terminate those that still do not: what had begun becomes a dead "
        "letter.",
    ),
    LANE_BLOCKED: Condition("Lane of an order key blocked by a dead letter", "lanes?blocked=true"),
    TASK_HUB_AWAY: Condition("The task hub does not answer"),
    HELD: Condition(
        "Operations held by their policies",
        "operations?status=paused",
        " Resume them once their dependency works; else they become dead letters.",
    ),
    LACKING: Condition(
        "Operations wait for what this app does not have",
        what_to_do=" Deploy it, or give a dependency that was renamed its earlier name by `was`.",
        over=("Operations no longer wait for what this app does not have", "missing"),
    ),
    TEST: Condition("Test"),
}

MAX_TRIES: Final = 60
"""Tries per message and receiver, about one a minute."""

MOST_EXHAUSTED: Final = 998
"""The highest threshold of exhausted retries: no more than 999 of a status are counted."""

# Less than the minute between two checks: of two workers that check at once, the second finds it begun.
_RETRY: Final = timedelta(seconds=50)


@dataclass(frozen=True, slots=True)
class HealthMetric:
    """One metric that has a threshold, and its present value."""

    condition: str  # one of `CONDITIONS`; of a circuit or a credential with `:` and the dependency
    # In the unit that the name ends in; None where it could not be read: its alert stays as it is.
    value: float | None
    threshold: float  # above this value the alert is raised; 0 is off
    # The limit keys whose circuits are not closed, what stands still or is missing, or how many are held.
    names: tuple[str, ...] | None = None
    why: str | None = None  # what holds calls up, with the latest error; None where that is not known

    @property
    def is_exceeded(self) -> bool:
        return self.value is not None and 0 < self.threshold < self.value


class DeliveryState(StrEnum):
    """Where a message to one receiver stands."""

    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertDelivery(JsonShape):
    """A message to one receiver."""

    state: DeliveryState = DeliveryState.PENDING
    tries: int = 0
    next_at: datetime | None = None  # not before this instant is it tried again; None before the first try
    detail: str | None = None  # why the last try failed, without an address; None when none did

    def is_due(self, now: datetime) -> bool:
        return self.state is DeliveryState.PENDING and (self.next_at is None or self.next_at <= now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert(JsonShape):
    """The latest change of one condition."""

    condition: str
    is_raised: bool
    since: datetime
    value: float  # of the latest check while it is raised, so that a late message says what is so by then
    threshold: float
    raised_at: datetime  # when the incident began
    # By receiver, the messages about this change, and once it is over those about its beginning.
    deliveries: Mapping[str, AlertDelivery] = field(default_factory=dict)
    raised_deliveries: Mapping[str, AlertDelivery] = field(default_factory=dict)
    names: tuple[str, ...] | None = None  # those of the metric, as the value; None for none
    why: str | None = None  # the same

    @property
    def id(self) -> str:
        """The id of this change, for receivers that deduplicate."""
        return f"alert-{self.condition}-{self.state}-{_compact_instant(self.since)}"

    @property
    def state(self) -> str:
        """`raised` or `cleared`."""
        return "raised" if self.is_raised else "cleared"

    @property
    def kind(self) -> str:
        """The condition without its dependency."""
        return self.condition.partition(":")[0]

    @property
    def dependency(self) -> str | None:
        """The dependency that the condition is about; None when it is about the app."""
        return self.condition.partition(":")[2] or None

    @property
    def about(self) -> Condition:
        """What it is raised for; one that nobody measures any more has its name alone."""
        return CONDITIONS.get(self.kind) or Condition(self.kind)

    @property
    def title(self) -> str:
        """What is measured, for a person."""
        return self._named(self.about.title)

    def _named(self, title: str) -> str:
        title = title if self.dependency is None else f"{title}, {self.dependency}"
        return title if self.names is None else f"{title} ({names_text(self.names, _NAMED)})"

    @property
    def text(self) -> str:
        """The change as one sentence."""
        if self.kind == TEST:
            return "This message was sent to try the receivers: nothing is wrong."
        value, threshold = _value_text(self.kind, self.value), _value_text(self.kind, self.threshold)
        if self.is_raised:
            if self.kind == RETRIES_EXHAUSTED and self.value > MOST_EXHAUSTED:
                value = f"at least {value}"
            why = "" if self.why is None else f" {self.why[0].upper()}{self.why[1:]}."
            return f"{self.title}: {value}, over the threshold of {threshold}.{why}{self.about.what_to_do}"
        seconds = (self.since - self.raised_at).total_seconds()
        if self.about.over is not None:
            again, was = self.about.over
            # It began about its threshold before it was raised; but for a pause, whose end is known at once.
            seconds += 0 if self.kind == PAUSED else self.threshold
            return f"{self._named(again)}. It was {was} for about {duration_text(seconds)}."
        lasted = duration_text(seconds)
        return f"{self.title}: {value}, no longer over the threshold of {threshold}, after {lasted}."

    def document(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "incident_id": f"alert-{self.condition}-{_compact_instant(self.raised_at)}",
            "condition": self.condition,
            "dependency": self.dependency,
            "state": self.state,
            "value": self.value,
            "threshold": self.threshold,
            "text": self.text,
            "raised_at": to_rfc3339(self.raised_at),
            "at": to_rfc3339(self.since),
        }

    def is_due(self, receiver: str, now: datetime) -> bool:
        if receiver not in self.deliveries:
            return self.is_raised  # The end is only for those who may have got the beginning.
        return self.deliveries[receiver].is_due(now)

    def tries_of(self, receiver: str) -> int:
        return self.deliveries.get(receiver, AlertDelivery()).tries

    def trying(self, receiver: str, now: datetime) -> Self:
        """Return the alert with one more try; stored before the try begins."""
        known = self.deliveries.get(receiver, AlertDelivery())
        begun = replace(known, tries=known.tries + 1, next_at=now + _RETRY)
        return replace(self, deliveries={**self.deliveries, receiver: begun})

    def tried(self, receiver: str, failure: "Failure | None") -> Self:
        """Return the alert with the end of a try: None for a success."""
        delivery, state = self.deliveries[receiver], DeliveryState.SENT
        if failure is not None:
            is_over = failure.is_final or delivery.tries >= MAX_TRIES
            state = DeliveryState.FAILED if is_over else DeliveryState.PENDING
        ended = replace(delivery, state=state, detail=None if failure is None else failure.detail)
        return replace(self, deliveries={**self.deliveries, receiver: ended})


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a try failed."""

    detail: str  # the kind of failure, without an address: it can be a secret
    is_final: bool = False  # whether another try is of no use


def alert_changes(known: Mapping[str, Alert], metrics: Iterable[HealthMetric], now: datetime) -> list[Alert]:
    """Return the changes since the known alerts: conditions that exceed their threshold now, or no longer.

    Args:
        metrics: The present values. A condition whose value could not be read stays as it is. A raised one
            that is missing here is cleared: it is not measured any more.
    """
    changes = []
    by_condition = {metric.condition: metric for metric in metrics}
    for condition, metric in by_condition.items():
        last = known.get(condition)
        if metric.value is not None and metric.is_exceeded is not (last is not None and last.is_raised):
            changes.append(_alert_of_metric(metric, now, last))
    # A condition that is not measured any more would stay raised for ever.
    for condition, last in known.items():
        if last.is_raised and condition not in by_condition:
            changes.append(_alert_of_metric(HealthMetric(condition, 0.0, last.threshold), now, last))
    return changes


def with_new_values(known: Mapping[str, Alert], metrics: Iterable[HealthMetric]) -> Iterator[Alert]:
    """Yield the raised alerts of which the value, names or reason are others now, each with those."""
    for metric in metrics:
        alert = known.get(metric.condition)
        if alert is not None and alert.is_raised and metric.is_exceeded:
            changed = replace(alert, value=float(metric.value or 0), names=metric.names, why=metric.why)
            if changed != alert:
                yield changed


def _alert_of_metric(metric: HealthMetric, now: datetime, last: Alert | None) -> Alert:
    raised = Alert(
        condition=metric.condition,
        is_raised=True,
        since=now,
        value=float(metric.value or 0),
        threshold=metric.threshold,
        raised_at=now,
        names=metric.names,
        why=metric.why,
    )
    if metric.is_exceeded or last is None:
        return raised
    ended = replace(raised, is_raised=False, raised_at=last.raised_at, names=last.names)
    # The clearing message goes to each receiver that may have got the first one.
    told = (receiver for receiver, delivery in last.deliveries.items() if delivery.tries > 0)
    messages = {receiver: AlertDelivery() for receiver in told}
    return replace(ended, deliveries=messages, raised_deliveries=last.deliveries)


_NAMED: Final = 5


_MINUTE_SECONDS: Final = 60
_HOUR_SECONDS: Final = 3_600


def _value_text(kind: str, value: float) -> str:
    is_time = kind.endswith("_seconds") or kind in {NOT_STARTING, HELD}
    return duration_text(value) if is_time else f"{value:,.12g}"


def duration_text(seconds: float) -> str:
    """Return a duration for a person: `42 s`, `12 min`, `3 h 5 min`."""
    whole = int(seconds)
    if whole < _MINUTE_SECONDS:
        return f"{whole} s"
    if whole < _HOUR_SECONDS:
        return f"{whole // _MINUTE_SECONDS} min"
    return f"{whole // _HOUR_SECONDS} h {whole % _HOUR_SECONDS // _MINUTE_SECONDS} min"


def _compact_instant(instant: datetime) -> str:
    return f"{instant:%Y%m%dT%H%M%S.%fZ}"


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
