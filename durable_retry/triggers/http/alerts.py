"""HTTP: what alerts are raised, the latest incidents, and silences."""

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import azure.functions as func
from pydantic import BaseModel, Field

from durable_retry import clock
from durable_retry.engine.alerts import CONDITIONS, EVERY_CONDITION, Alert, DeliveryState, Silence
from durable_retry.engine.base.json_forms import optional_to_rfc3339, to_rfc3339
from durable_retry.engine.base.validation import Strict, checked
from durable_retry.settings.maintenance import maintenance_settings
from durable_retry.stores.alerts import (
    delete_silence,
    find_silence,
    known_alerts,
    list_incidents,
    list_silences,
    write_silence,
)
from durable_retry.triggers.http.answers import json_answer, required
from durable_retry.triggers.http.callers import Caller
from durable_retry.triggers.http.documents import UtcInstant
from durable_retry.triggers.http.routes import AWAY, MISSING, OK, RouteAnswer, Routes, shown

routes = Routes("alerts")

_MAX_MINUTES: Final = 7 * 24 * 60


class SilenceDocument(BaseModel):
    """Keeps back what is raised, until it ends."""

    id: str
    condition: str
    reason: str
    by: str
    created_at: UtcInstant
    until: UtcInstant


class MessageDocument(BaseModel):
    """The message about the latest change to one receiver."""

    receiver: str
    state: DeliveryState
    tries: int
    detail: str | None


class AlertDocument(BaseModel):
    """One incident of a condition."""

    condition: str
    dependency: str | None
    title: str
    text: str
    state: Literal["firing", "silenced", "resolved"]
    value: float
    threshold: float
    raised_at: UtcInstant
    resolved_at: UtcInstant | None
    silence: SilenceDocument | None
    deliveries: list[MessageDocument]


class ReceiverDocument(BaseModel):
    """Where alerts are sent, without its path."""

    receiver: str
    format: Literal["dependency", "webhook", "slack", "teams"]
    host: str | None


class AlertPage(BaseModel):
    """Everything about alerts."""

    items: Annotated[list[AlertDocument], Field(description="Those that are raised, the newest first.")]
    recent: Annotated[list[AlertDocument], Field(description="The latest incidents that ended.")]
    silences: list[SilenceDocument]
    receivers: list[ReceiverDocument]
    thresholds: Annotated[dict[str, float], Field(description="By condition; 0 is off.")]
    next_cursor: None


def _condition_problem(text: str) -> str | None:
    if text == EVERY_CONDITION or text.partition(":")[0] in CONDITIONS:
        return None
    return f"must be * or one of {', '.join(CONDITIONS)}, with `:` and a dependency for one circuit"


class SilenceBody(Strict):
    """The body of a silence.

    Attributes:
        condition: Which; `*` for every condition. That of circuits without a dependency covers all circuits.
        for_minutes: How long.
        reason: Why, for whoever looks later.
    """

    condition: Annotated[str, Field(max_length=300), checked(_condition_problem)]
    for_minutes: Annotated[float, Field(gt=0, le=_MAX_MINUTES)]
    reason: Annotated[
        str, Field(max_length=500), checked(lambda text: None if text.strip() else "must say why")
    ]


@routes.get("alerts", answers=shown(AlertPage), errors=(AWAY,))
async def list_alerts() -> func.HttpResponse:
    """Show what is raised, what was lately, the silences and the receivers.

    A timer compares every minute.
    """
    known, incidents, silences = await asyncio.gather(
        known_alerts(), list_incidents(), list_silences(clock.now())
    )
    document = {
        "items": _raised(known.values(), silences),
        "recent": [_shown(alert, ()) for alert in incidents if not alert.is_raised],
        "silences": [silence.document() for silence in silences],
        "receivers": _receivers(),
        "thresholds": _thresholds(),
        "next_cursor": None,
    }
    return json_answer(document)


@routes.post(
    "alerts/silences",
    body=SilenceBody,
    answers=(RouteAnswer(HTTPStatus.CREATED, "It holds from now on.", SilenceDocument),),
    errors=(AWAY,),
)
async def silence_alerts(body: SilenceBody, who: Caller) -> func.HttpResponse:
    """Keep back messages about what is raised, for some time.

    What is still raised when the silence ends is sent then. The end of an incident is always sent to those
    who were sent its beginning.
    """
    now = clock.now()
    silence = Silence(
        id=f"silence-{uuid.uuid4().hex}",
        condition=body.condition,
        reason=body.reason.strip(),
        by=who.name,
        created_at=now,
        until=now + timedelta(minutes=body.for_minutes),
    )
    await write_silence(silence)
    return json_answer(silence.document(), HTTPStatus.CREATED)


@routes.delete(
    "alerts/silences/{silence_id}",
    answers=(RouteAnswer(OK, "It ended.", SilenceDocument),),
    errors=(MISSING, AWAY),
)
async def end_silence(silence_id: str) -> func.HttpResponse:
    """End a silence."""
    silence = required(await find_silence(silence_id), "silence of this id")
    await delete_silence(silence_id)
    return json_answer(silence.document())


async def raised_alerts() -> list[dict[str, Any]]:
    """Return the alerts that are raised, the newest first, as `GET /api/alerts` shows them."""
    known, silences = await asyncio.gather(known_alerts(), list_silences(clock.now()))
    return _raised(known.values(), silences)


def _raised(known: Iterable[Alert], silences: Sequence[Silence]) -> list[dict[str, Any]]:
    raised = sorted((one for one in known if one.is_raised), key=lambda one: one.since, reverse=True)
    return [_shown(alert, silences) for alert in raised]


def _shown(alert: Alert, silences: Iterable[Silence]) -> dict[str, Any]:
    covering = [silence for silence in silences if alert.is_raised and silence.covers(alert.condition)]
    silence = max(covering, key=lambda each: each.until, default=None)
    return {
        "condition": alert.condition,
        "dependency": alert.dependency,
        "title": alert.title,
        "text": alert.text,
        "state": "resolved" if not alert.is_raised else "firing" if silence is None else "silenced",
        "value": alert.value,
        "threshold": alert.threshold,
        "raised_at": to_rfc3339(alert.began_at),
        "resolved_at": optional_to_rfc3339(None if alert.is_raised else alert.since),
        "silence": None if silence is None else silence.document(),
        "deliveries": [
            {
                "receiver": name,
                "state": delivery.state.value,
                "tries": delivery.tries,
                "detail": delivery.detail,
            }
            for name, delivery in sorted(alert.deliveries.items())
        ],
    }


def _receivers() -> list[dict[str, str | None]]:
    settings = maintenance_settings()
    found: list[dict[str, str | None]] = [
        {"receiver": each.name, "format": each.format.value, "host": each.host} for each in settings.receivers
    ]
    if settings.webhook is not None:
        found.append({"receiver": settings.webhook.name, "format": "dependency", "host": None})
    return found


def _thresholds() -> dict[str, float]:
    thresholds = maintenance_settings().thresholds
    return {name: getattr(thresholds, name) for name in CONDITIONS}
