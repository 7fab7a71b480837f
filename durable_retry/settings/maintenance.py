"""App settings of monitoring and retention."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import cache
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from durable_retry.engine.alerts import Thresholds
from durable_retry.engine.base.text import Secret
from durable_retry.engine.base.validation import Problem
from durable_retry.engine.dependency import WebhookSecretError, signing_key
from durable_retry.settings.catalogue import (
    ALERT_CIRCUIT_OPEN_SECONDS,
    ALERT_DEAD_LETTER_AGE_SECONDS,
    ALERT_DEAD_LETTERS,
    ALERT_OUTBOX_LAG_SECONDS,
    ALERT_RETRIES_EXHAUSTED_PER_HOUR,
    ALERT_SLACK_URL,
    ALERT_TEAMS_URL,
    ALERT_WEBHOOK,
    ALERT_WEBHOOK_SECRET,
    ALERT_WEBHOOK_URL,
    DEAD_LETTER_RETENTION_DAYS,
    HISTORY_RETENTION_DAYS,
    METRICS_RETENTION_DAYS,
    SENT_EVENT_RETENTION_DAYS,
    SITE_HOST,
)
from durable_retry.settings.setting import Number, SettingsError, Text

_WEBHOOK: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}):(/.*)")


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where alerts are sent: a configured dependency, and the path there."""

    dependency: str
    path: str

    @property
    def name(self) -> str:
        """By which deliveries are kept."""
        return f"dependency:{self.dependency}:{self.path}"


class Format(StrEnum):
    """The form of message that a receiver of alerts takes."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    TEAMS = "teams"


@dataclass(frozen=True, slots=True)
class Receiver:
    """A URL that alerts are posted to. Its path is often a credential, so the URL is a secret."""

    format: Format
    url: Secret

    @property
    def host(self) -> str:
        """The part of the URL that may be shown."""
        return urlsplit(self.url.reveal()).hostname or ""

    @property
    def name(self) -> str:
        """By which deliveries are kept; another URL is another receiver."""
        return f"{self.format}:{self.host}:{sha256(self.url.reveal().encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """Settings of alerts and retention.

    Attributes:
        thresholds: Of alerts.
        webhook: Receives alerts by an operation; None: there is none.
        receivers: URLs that receive alerts.
        signing_keys: Of what receivers of the format `webhook` get, the newest first.
        site_host: Host name under which people reach the app; None: it is not known.
        archived_for: How long archived dead letters are kept; None: for ever.
        history_for: How long finished orchestrations and batches are kept, from their start; None: for ever.
        sent_for: How long sent events are kept, from their operation's success; None: for ever.
        metrics_for: How long metrics over time are kept; None: for ever.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    webhook: Webhook | None = None
    receivers: tuple[Receiver, ...] = ()
    signing_keys: tuple[Secret, ...] = ()
    site_host: str | None = None
    archived_for: timedelta | None = timedelta(days=DEAD_LETTER_RETENTION_DAYS.default)
    history_for: timedelta | None = timedelta(days=HISTORY_RETENTION_DAYS.default)
    sent_for: timedelta | None = timedelta(days=SENT_EVENT_RETENTION_DAYS.default)
    metrics_for: timedelta | None = timedelta(days=METRICS_RETENTION_DAYS.default)


def read_maintenance_settings(environ: Mapping[str, str]) -> MaintenanceSettings:
    """Read the settings. 0 switches a threshold off; for a retention 0 means for ever.

    Raises:
        SettingsError: Lists every setting with an invalid value.
    """
    problems: list[Problem] = []
    settings = MaintenanceSettings(
        thresholds=Thresholds(
            dead_letters=ALERT_DEAD_LETTERS.read(environ, problems),
            dead_letter_age_seconds=ALERT_DEAD_LETTER_AGE_SECONDS.read(environ, problems),
            outbox_lag_seconds=ALERT_OUTBOX_LAG_SECONDS.read(environ, problems),
            circuit_open_seconds=ALERT_CIRCUIT_OPEN_SECONDS.read(environ, problems),
            retries_exhausted_per_hour=ALERT_RETRIES_EXHAUSTED_PER_HOUR.read(environ, problems),
        ),
        webhook=_webhook(ALERT_WEBHOOK.get(environ), problems),
        receivers=tuple(_receivers(environ, problems)),
        signing_keys=_signing_keys(environ, problems),
        site_host=SITE_HOST.get(environ) or None,
        archived_for=_days(DEAD_LETTER_RETENTION_DAYS, environ, problems),
        history_for=_days(HISTORY_RETENTION_DAYS, environ, problems),
        sent_for=_days(SENT_EVENT_RETENTION_DAYS, environ, problems),
        metrics_for=_days(METRICS_RETENTION_DAYS, environ, problems),
    )
    if problems:
        raise SettingsError(tuple(problems))
    return settings


@cache
def maintenance_settings() -> MaintenanceSettings:
    """Return this process's settings, read once.

    Raises:
        SettingsError: See `read_maintenance_settings`.
    """
    return read_maintenance_settings(os.environ)


def _days(setting: Number, environ: Mapping[str, str], problems: list[Problem]) -> timedelta | None:
    days = setting.read(environ, problems)
    return None if days == 0 else timedelta(days=days)


def _webhook(text: str, problems: list[Problem]) -> Webhook | None:
    if not text:
        return None
    found = _WEBHOOK.fullmatch(text)
    if found is None:
        problems.append(Problem(ALERT_WEBHOOK.name, f"must look like dependency:/path, not {text!r}"))
        return None
    return Webhook(found[1], found[2])


_URLS: Final[Mapping[Format, tuple[Text, str]]] = {
    Format.WEBHOOK: (ALERT_WEBHOOK_URL, "https://alerts.example.com/durable-retry"),
    Format.SLACK: (ALERT_SLACK_URL, "https://hooks.slack.com/services/T000/B000/XXXX"),
    Format.TEAMS: (ALERT_TEAMS_URL, "https://example.logic.azure.com/workflows/..."),
}
"""The setting of each format, and an example."""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def _receivers(environ: Mapping[str, str], problems: list[Problem]) -> Iterator[Receiver]:
    for format_, (setting, example) in _URLS.items():
        for number, url in enumerate(dict.fromkeys(setting.get(environ).split()), 1):
            if _is_postable(url):
                yield Receiver(format_, Secret(url))
            else:
                # Without the value: its path may be a credential.
                how = f"write one such as {example}, several with a space between"
                detail = f"URL {number} is not an https URL with a host; {how}"
                problems.append(Problem(setting.name, detail))


def _is_postable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    is_local = parts.scheme == "http" and host in _LOOPBACK
    return bool(host) and (parts.scheme == "https" or is_local) and url.isascii() and url.isprintable()


def _signing_keys(environ: Mapping[str, str], problems: list[Problem]) -> tuple[Secret, ...]:
    secrets = tuple(Secret(text) for text in ALERT_WEBHOOK_SECRET.get(environ).split())
    for number, secret in enumerate(secrets, 1):
        try:
            signing_key(secret)
        except WebhookSecretError as error:
            problems.append(Problem(ALERT_WEBHOOK_SECRET.name, f"secret {number} {error}; {_HOW_TO_MAKE}"))
    if ALERT_WEBHOOK_URL.get(environ) and not secrets:
        detail = f"is needed by {ALERT_WEBHOOK_URL.name}, whose messages are signed; {_HOW_TO_MAKE}"
        problems.append(Problem(ALERT_WEBHOOK_SECRET.name, detail))
    return secrets


_HOW_TO_MAKE: Final = "make one with: openssl rand -base64 32"
