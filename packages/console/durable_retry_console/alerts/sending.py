"""Sending one message about an alert to one receiver."""

import asyncio
import json
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, assert_never

import httpx

from durable_retry.engine.base.errors import TaskHubUnavailableError
from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.config.dependency import signing_key
from durable_retry.engine.operations.naming import ScopedKey
from durable_retry.engine.operations.submission import Naming, ParsedEnvelope, read_operation
from durable_retry.engine.outbox import signed_headers
from durable_retry.services.operations.submit import submit
from durable_retry.settings.alerts import AlertSettings, Format, Receiver, Webhook, alert_settings
from durable_retry.settings.configuration import api_path, targets
from durable_retry.stores.task_hub import TaskHub
from durable_retry_console.alerts.messages import (
    AlertLinks,
    links_of,
    slack_message,
    teams_message,
    webhook_message,
)
from durable_retry_console.alerts.rules import Alert, Failure

SOURCE: Final = "watch"

_SEND_SECONDS: Final = 5.0

type Target = Webhook | Receiver


def targets_by_name() -> dict[str, Target]:
    """Return every receiver, by the name under which deliveries are kept."""
    settings = alert_settings()
    webhook = settings.alert_webhook
    found: list[Target] = [*settings.receivers, *([] if webhook is None else [webhook])]
    return {target.name: target for target in found}


def links_to(alert: Alert) -> AlertLinks:
    """Return where a person looks for an alert."""
    settings = alert_settings()
    host = settings.website_hostname
    dashboard = f"https://{host}{api_path()}/dashboard" if host else None
    return links_of(alert, dashboard=dashboard, runbook=settings.alert_runbook_url)


async def send_alert_to(hub: TaskHub, alert: Alert, target: Target, now: datetime) -> Failure | None:
    """Send one message; None for a success."""
    if isinstance(target, Webhook):
        return await _send_as_operation(hub, alert, target, now)
    body = json.dumps(_body_for_receiver(alert, target), separators=(",", ":"), ensure_ascii=False)
    headers = {"Content-Type": "application/json; charset=utf-8"}
    if target.format is Format.WEBHOOK:
        keys = [signing_key(secret) for secret in alert_settings().alert_webhook_secret]
        headers |= signed_headers(alert.id, body, keys, now)
    try:
        async with (
            asyncio.timeout(_SEND_SECONDS),
            httpx.AsyncClient(timeout=_SEND_SECONDS, trust_env=False) as client,
            client.stream("POST", target.url.reveal(), content=body.encode(), headers=headers) as response,
        ):
            return _failure_of_status(response.status_code)
    except (httpx.HTTPError, OSError, TimeoutError) as error:
        return Failure(type(error).__name__)


def _body_for_receiver(alert: Alert, receiver: Receiver) -> dict[str, Any]:
    links = links_to(alert)
    match receiver.format:
        case Format.SLACK:
            return slack_message(alert, links)
        case Format.TEAMS:
            return teams_message(alert, links)
        case Format.WEBHOOK:
            return webhook_message(alert, links)
        case _ as never:
            assert_never(never)


_PASSING: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


def _failure_of_status(status: int) -> Failure | None:
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return None
    return Failure(
        f"it answered {status}", is_final=status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _PASSING
    )


async def _send_as_operation(hub: TaskHub, alert: Alert, webhook: Webhook, now: datetime) -> Failure | None:
    call = {"method": "POST", "path": webhook.path, "json": webhook_message(alert, links_to(alert))}
    document = {"dependency": webhook.dependency, "request": call}
    try:
        naming = Naming(own=ScopedKey(f"source:{SOURCE}", alert.id))
        operation = read_operation(ParsedEnvelope(document), naming, targets(), source=SOURCE, now=now)
        await submit(hub, operation)
    except InvalidInputError as error:
        return Failure(f"{AlertSettings.name_of('alert_webhook')} cannot be used: {error}", is_final=True)
    except TaskHubUnavailableError:
        return Failure("the task hub did not take it")
    return None
