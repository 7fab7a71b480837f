"""Sending one message about an alert to one receiver."""

import asyncio
import json
from datetime import datetime
from http import HTTPStatus
from typing import Final

import httpx

from durable_retry.base.signatures import signed_headers, signing_key
from durable_retry.settings.configuration import api_path
from durable_retry_console.alerts.rules import Alert, Failure, links_of, slack_message, webhook_message
from durable_retry_console.alerts.settings import ReceiverName, alert_settings

_SEND_SECONDS: Final = 5.0
_PASSING: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


def links_to(alert: Alert) -> dict[str, str]:
    """Return where a person looks for an alert, see `links_of`."""
    settings = alert_settings()
    host = settings.website_hostname
    dashboard = f"https://{host}{api_path()}/dashboard" if host else None
    return links_of(alert, dashboard=dashboard, runbook=settings.alert_runbook_url)


async def send_alert_to(alert: Alert, receiver: ReceiverName, now: datetime) -> Failure | None:
    """Send one message to a receiver of `AlertSettings.receivers`; None for a success."""
    settings = alert_settings()
    form = slack_message if receiver == "slack" else webhook_message
    body = json.dumps(form(alert, links_to(alert)), separators=(",", ":"), ensure_ascii=False)
    headers = {"Content-Type": "application/json; charset=utf-8"}
    if receiver == "webhook":
        keys = [signing_key(secret) for secret in settings.alert_webhook_secret]
        headers |= signed_headers(alert.id, body, keys, now)
    url = settings.receivers[receiver].reveal()
    try:
        async with (
            asyncio.timeout(_SEND_SECONDS),
            httpx.AsyncClient(timeout=_SEND_SECONDS, trust_env=False) as client,
            client.stream("POST", url, content=body.encode(), headers=headers) as response,
        ):
            status = response.status_code
    except (httpx.HTTPError, OSError, TimeoutError) as error:
        return Failure(type(error).__name__)
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return None
    is_final = status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _PASSING
    return Failure(f"it answered {status}", is_final=is_final)
