"""App settings of monitoring and retention."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Final

from durable_retry.engine.alerts import Thresholds
from durable_retry.engine.base.validation import Problem
from durable_retry.settings.app import SettingsError
from durable_retry.settings.catalogue import (
    ALERT_CIRCUIT_OPEN_SECONDS,
    ALERT_DEAD_LETTER_AGE_SECONDS,
    ALERT_DEAD_LETTERS,
    ALERT_OUTBOX_LAG_SECONDS,
    ALERT_WEBHOOK,
    DEAD_LETTER_RETENTION_DAYS,
    HISTORY_RETENTION_DAYS,
    METRICS_RETENTION_DAYS,
    SENT_EVENT_RETENTION_DAYS,
)
from durable_retry.settings.setting import Number

_WEBHOOK: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}):(/.*)")


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where alerts are sent: a configured dependency, and the path there."""

    dependency: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """Settings of alerts and retention.

    Attributes:
        thresholds: Of alerts.
        webhook: Receives alerts in addition to the log; None: the log only.
        archived_for: How long archived dead letters are kept; None: for ever.
        history_for: How long finished orchestrations and batches are kept, from their start; None: for ever.
        sent_for: How long sent events are kept, from their operation's success; None: for ever.
        metrics_for: How long metrics over time are kept; None: for ever.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    webhook: Webhook | None = None
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
        ),
        webhook=_webhook(ALERT_WEBHOOK.get(environ), problems),
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
