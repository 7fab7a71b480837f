"""What people see of alerts, and the silences that they begin and end."""

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime

from durable_retry import clock
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.settings.alerts import alert_settings
from durable_retry.stores.task_hub import TaskHub
from durable_retry_console.alerts.document import (
    AlertBoard,
    AlertDocument,
    AlertMessage,
    AlertReceiver,
    AlertTest,
    AlertTests,
)
from durable_retry_console.alerts.health import own_thresholds
from durable_retry_console.alerts.rules import CONDITIONS, TEST, Alert, DeliveryState, Silence
from durable_retry_console.alerts.sending import links_to, send_alert_to, targets_by_name
from durable_retry_console.alerts.store import (
    delete_silence,
    find_silence,
    known_alerts,
    list_incidents,
    list_silences,
    write_silence,
)


async def read_board() -> AlertBoard:
    """Return what is raised, what was lately, the silences, the receivers and the thresholds."""
    known, incidents, silences = await asyncio.gather(
        known_alerts(), list_incidents(), list_silences(clock.now())
    )
    of_all, quiet = alert_settings().thresholds, alert_settings().alert_quiet_hours
    thresholds = {name: float(getattr(of_all, name)) for name in CONDITIONS}
    return AlertBoard(
        items=_raised_documents(known.values(), silences),
        recent=tuple(_alert_document(alert, ()) for alert in incidents if not alert.is_raised),
        silences=tuple(silences),
        receivers=_receiver_documents(),
        thresholds=thresholds | _thresholds_of_dependencies(),
        is_quiet=quiet is not None and quiet.covers(clock.now()),
    )


def _thresholds_of_dependencies() -> dict[str, float]:
    return {
        f"{name}:{dependency}": float(threshold)
        for dependency, own in own_thresholds().items()
        for name, threshold in asdict(own).items()
        if threshold is not None
    }


async def try_receivers(hub: TaskHub) -> AlertTests:
    """Send a message to every receiver at once, and say what became of it."""
    now = clock.now()
    alert = Alert(condition=TEST, is_raised=True, since=now, value=0.0, threshold=0.0, raised_at=now)
    receivers = targets_by_name()
    failures = await asyncio.gather(
        *(send_alert_to(hub, alert, receiver, now) for receiver in receivers.values())
    )
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


async def begin_silence(
    condition: str, until: datetime, *, receiver: str | None, reason: str, by: str
) -> Silence:
    """Keep back messages about a condition from now on: to one receiver, or to all of them (None).

    Raises:
        InvalidInputError: There is no receiver of this name.
    """
    if receiver is not None and receiver not in (names := targets_by_name()):
        detail = f"must be one of {', '.join(names)}" if names else "nobody receives alerts"
        raise InvalidInputError([Problem("/receiver", detail)])
    now = clock.now()
    silence = Silence(
        id=f"silence-{uuid.uuid4().hex}",
        condition=condition,
        reason=reason,
        by=by,
        created_at=now,
        until=until,
        receiver=receiver,
    )
    await write_silence(silence)
    return silence


async def lift_silence(silence_id: str) -> Silence | None:
    """End a silence and return it; None when there is none of this id."""
    silence = await find_silence(silence_id)
    if silence is not None:
        await delete_silence(silence_id)
    return silence


async def raised_alerts() -> tuple[AlertDocument, ...]:
    """Return the alerts that are raised, the newest first."""
    known, silences = await asyncio.gather(known_alerts(), list_silences(clock.now()))
    return _raised_documents(known.values(), silences)


def _raised_documents(known: Iterable[Alert], silences: Sequence[Silence]) -> tuple[AlertDocument, ...]:
    raised = sorted((one for one in known if one.is_raised), key=lambda one: one.since, reverse=True)
    return tuple(_alert_document(alert, silences) for alert in raised)


def _alert_document(alert: Alert, silences: Iterable[Silence]) -> AlertDocument:
    covering = [silence for silence in silences if alert.is_raised and silence.covers(alert.condition)]
    silence = max(covering, key=lambda each: each.until, default=None)
    is_quiet = alert_settings().is_quiet(alert.kind, clock.now())
    return AlertDocument.taken_from(
        alert,
        state="resolved" if not alert.is_raised else "silenced" if silence or is_quiet else "firing",
        raised_at=alert.raised_at,
        resolved_at=None if alert.is_raised else alert.since,
        silence=silence,
        deliveries=tuple(
            AlertMessage.taken_from(delivery, receiver=name)
            for name, delivery in sorted(alert.deliveries.items())
        ),
        runbook_url=links_to(alert).runbook,
    )


def _receiver_documents() -> tuple[AlertReceiver, ...]:
    settings = alert_settings()
    found = [
        AlertReceiver(receiver=receiver.name, format=receiver.format.value, host=receiver.host)
        for receiver in settings.receivers
    ]
    if settings.alert_webhook is not None:
        found.append(AlertReceiver(receiver=settings.alert_webhook.name, format="dependency", host=None))
    return tuple(found)
