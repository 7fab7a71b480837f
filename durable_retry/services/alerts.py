"""Health metrics and alerts: read the metrics, show them as gauges, send changes of alerts to people.

The cost of a run depends on what is open, pending or configured only.

The last alert of each condition is stored with its messages, so that each is sent once, whatever restarts.

    change ──> row, if no other worker wrote it ──> log
    message due ──> row with one more try ──> post ──> row with the end of the try

A crash after a post leaves the message to the next run, which sends it again under the same id. Two workers
cannot both begin a try: each writes the row under the version that it read.
"""

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final, assert_never

import httpx

from durable_retry.engine.alerts import (
    CIRCUIT_OPEN,
    DEAD_LETTER_AGE,
    DEAD_LETTERS,
    OUTBOX_LAG,
    RETRIES_EXHAUSTED,
    Alert,
    Failure,
    HealthMetric,
    Thresholds,
    alert_changes,
    slack_message,
    teams_message,
)
from durable_retry.engine.base.names import DeadLetterReason
from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.circuit import Breaker, CircuitState
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dependency import signing_key
from durable_retry.engine.limits import LimitSettings, shared_limits_at
from durable_retry.engine.operations.operation import ScopedKey
from durable_retry.engine.operations.request import ParsedEnvelope
from durable_retry.engine.outbox import signed_headers
from durable_retry.services.submit import Naming, parse, resolve, submit
from durable_retry.settings.catalogue import ALERT_WEBHOOK
from durable_retry.settings.configuration import api_path, dependencies
from durable_retry.settings.maintenance import Format, Receiver, Webhook, maintenance_settings
from durable_retry.stores.alerts import (
    change_alert,
    known_alerts,
    list_silences,
    remove_ended_silences,
    remove_old_incidents,
    write_change,
)
from durable_retry.stores.circuit import CircuitEntity
from durable_retry.stores.dead_letters.index import Summary, read_summary
from durable_retry.stores.dead_letters.list import count_dead_letters
from durable_retry.stores.outbox_index import list_notes
from durable_retry.stores.task_hub import TaskHubUnavailableError
from durable_retry.telemetry import metrics
from durable_retry.telemetry.spans import CIRCUIT_STATE, DEPENDENCY, QUEUE, dependency_label

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
        retries_exhausted: Operations that used up their attempts in the last hour, of about the first 3,000.
    """

    dead_letters: Summary
    outbox_lag_seconds: float
    circuits: Mapping[str, Breaker]
    now: datetime
    retries_exhausted: int = 0

    def with_thresholds(self, thresholds: Thresholds) -> list[HealthMetric]:
        """Return each metric with its threshold."""
        waiting = self.dead_letters.total
        return [
            HealthMetric(DEAD_LETTERS, float(waiting.count), thresholds.dead_letters),
            HealthMetric(DEAD_LETTER_AGE, self.dead_letter_age_seconds, thresholds.dead_letter_age_seconds),
            HealthMetric(OUTBOX_LAG, self.outbox_lag_seconds, thresholds.outbox_lag_seconds),
            HealthMetric(
                RETRIES_EXHAUSTED, float(self.retries_exhausted), thresholds.retries_exhausted_per_hour
            ),
            *(
                HealthMetric(
                    f"{CIRCUIT_OPEN}:{name}",
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
    letters, lag_seconds, circuits, exhausted = await asyncio.gather(
        read_summary(), _outbox(now), _circuits(hub), _retries_exhausted(now)
    )
    return HealthMetrics(letters, lag_seconds, circuits, now, exhausted)


async def _retries_exhausted(now: datetime) -> int:
    """Count the dead letters of the last hour whose attempts were used up; 0 when no threshold needs it."""
    if maintenance_settings().thresholds.retries_exhausted_per_hour <= 0:
        return 0
    reason = DeadLetterReason.RETRIES_EXHAUSTED.value
    lately = DeadLetterFilter(reason=reason, created_after=now - timedelta(hours=1))
    return await count_dead_letters(lately, one_page=True)


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
    """Check all health metrics, and send what changed; returns the changes that were stored.

    Raises:
        TaskHubUnavailableError: A metric could not be read. What was to be sent was sent all the same.
    """
    try:
        return await _check(hub, now)
    finally:
        await _send_due(hub, now)


async def _check(hub: str, now: datetime) -> list[Alert]:
    health = await read_health_metrics(hub, now)
    show(health)
    known = await known_alerts()
    changes = []
    for alert in alert_changes(known, health.with_thresholds(maintenance_settings().thresholds), now):
        if await write_change(alert, known.get(alert.condition)):
            _write_log(alert)
            changes.append(alert)
    if changes:
        await remove_old_incidents()
    await remove_ended_silences(now)
    return changes


def _write_log(alert: Alert) -> None:
    document = alert.document()
    level = logging.WARNING if alert.is_raised else logging.INFO
    values = (alert.condition, alert.state, alert.value, alert.threshold)
    extra = {f"durable_retry.alert.{name}": value for name, value in document.items()}
    _log.log(level, "alert %s %s: %s, threshold %s", *values, extra=extra)


_SEND_SECONDS: Final = 5.0
_RUN_SECONDS: Final = 15.0
"""Of all messages of one run; the next run sends the rest."""

type _Target = Webhook | Receiver


async def _send_due(hub: str, now: datetime) -> None:
    """Send what is due, each message at most once. Only storage can make this fail."""
    settings = maintenance_settings()
    targets: list[_Target] = [*settings.receivers, *([] if settings.webhook is None else [settings.webhook])]
    if not targets:
        return
    by_name = {target.name: target for target in targets}
    silences = await list_silences(now)
    with suppress(TimeoutError):
        async with asyncio.timeout(_RUN_SECONDS):
            for alert in (await known_alerts()).values():
                is_silenced = any(silence.covers(alert.condition) for silence in silences)
                if alert.due(by_name, now, is_silenced=is_silenced):
                    await _send_of(hub, alert, by_name, now, is_silenced=is_silenced)


async def _send_of(
    hub: str, alert: Alert, targets: Mapping[str, _Target], now: datetime, *, is_silenced: bool
) -> None:
    """Send the messages of one alert that are due, all at once."""
    begun: list[str] = []

    def begin(found: Alert) -> Alert:
        begun[:] = found.due(targets, now, is_silenced=is_silenced) if found.id == alert.id else []
        return found.trying(begun, now)

    if not await change_alert(alert.condition, begin):
        return
    sent = await asyncio.gather(*(_send(hub, alert, targets[name], now) for name in begun))
    ended = dict(zip(begun, sent, strict=True))
    for name, failure in ended.items():
        if failure is not None:
            _log.warning("the alert %s did not reach %s: %s", alert.id, name, failure.detail)
    await change_alert(alert.condition, lambda found: found.tried(ended) if found.id == alert.id else found)


async def _send(hub: str, alert: Alert, target: _Target, now: datetime) -> Failure | None:
    """Send one message; returns why it failed, None for a success."""
    if isinstance(target, Webhook):
        return await _start_operation(hub, alert, target, now)
    body = json.dumps(_body(alert, target), separators=(",", ":"), ensure_ascii=False)
    headers = {"Content-Type": "application/json; charset=utf-8"}
    if target.format is Format.WEBHOOK:
        keys = [signing_key(secret) for secret in maintenance_settings().signing_keys]
        headers |= signed_headers(alert.id, body, keys, now)
    try:
        async with (
            asyncio.timeout(_SEND_SECONDS),
            httpx.AsyncClient(timeout=_SEND_SECONDS, trust_env=False) as client,
            client.stream("POST", target.url.reveal(), content=body.encode(), headers=headers) as response,
        ):
            return _failure_of(response.status_code)
    except (httpx.HTTPError, OSError, TimeoutError) as error:
        return Failure(type(error).__name__)


def _body(alert: Alert, receiver: Receiver) -> dict[str, Any]:
    host = maintenance_settings().site_host
    link = None if host is None else f"https://{host}{api_path()}/dashboard#/alerts"
    match receiver.format:
        case Format.SLACK:
            return slack_message(alert, link)
        case Format.TEAMS:
            return teams_message(alert, link)
        case Format.WEBHOOK:
            return alert.document()
        case _ as never:
            assert_never(never)


_PASSING: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


def _failure_of(status: int) -> Failure | None:
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return None
    return Failure(
        f"it answered {status}", is_final=status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _PASSING
    )


async def _start_operation(hub: str, alert: Alert, webhook: Webhook, now: datetime) -> Failure | None:
    """Send an alert as an operation, retried like any other and deduplicated by the alert's id."""
    call = {"method": "POST", "path": webhook.path, "json": alert.document()}
    document = {"dependency": webhook.dependency, "request": call}
    try:
        naming = Naming(own=ScopedKey(f"source:{SOURCE}", alert.id))
        await submit(hub, resolve(parse(ParsedEnvelope(document), naming), source=SOURCE, now=now))
    except InvalidInputError as error:
        return Failure(f"{ALERT_WEBHOOK.name} cannot be used: {error}", is_final=True)
    except TaskHubUnavailableError:
        return Failure("the task hub did not take it")
    return None


def show(health: HealthMetrics) -> None:
    """Publish the metrics as gauges."""
    limits = list(_limits(health))
    metrics.show_gauges(
        {
            metrics.DEAD_LETTERS.name: list(_dead_letters(health)),
            metrics.DEAD_LETTER_AGE.name: [(health.dead_letter_age_seconds, {})],
            metrics.OUTBOX_LAG.name: [(health.outbox_lag_seconds, {})],
            metrics.CIRCUIT_STATUS.name: list(_circuit_states(health)),
            metrics.LIMIT_CONCURRENCY.name: _present((each, one.max_concurrency) for each, one in limits),
            metrics.LIMIT_RATE.name: _present((each, one.rate_per_second) for each, one in limits),
        }
    )


def _present(values: Iterable[tuple[str, float]]) -> list[metrics.GaugeValue]:
    """Return the values of dependencies that have a limit; 0 is none."""
    return [(value, {DEPENDENCY: name}) for name, value in values if value > 0]


def _limits(health: HealthMetrics) -> Iterator[tuple[str, LimitSettings]]:
    """Yield each dependency with its limits of this moment."""
    for name, dependency in dependencies().dependencies.items():
        breaker = health.circuits.get(name, Breaker())
        yield name, shared_limits_at(health.now, dependency.limits, breaker).settings


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
