"""App settings of monitoring and retention."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Final

from engine.alert import Thresholds
from engine.problem import Problem
from stores.setting import Number
from stores.setting_catalogue import (
    ALERT_CIRCUIT_OPEN_SECONDS,
    ALERT_DEAD_LETTER_AGE_SECONDS,
    ALERT_DEAD_LETTERS,
    ALERT_OUTBOX_LAG_SECONDS,
    ALERT_WEBHOOK,
    DEAD_LETTER_RETENTION_DAYS,
    HISTORY_RETENTION_DAYS,
    SENT_EVENT_RETENTION_DAYS,
)
from stores.settings import SettingsError

_WEBHOOK: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}):(/.*)")


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where alerts are sent: a configured dependency, and the path there."""

    dependency: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepSettings:
    """What monitoring and retention go by.

    Attributes:
        thresholds: From when on a person is told.
        webhook: Who is told beside the log; None: nobody.
        archived_for: How long archived dead letters are kept; None: for ever.
        history_for: How long finished orchestrations and batches are kept, from their start; None: for ever.
        sent_for: How long sent events are kept, from their operation's success; None: for ever.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    webhook: Webhook | None = None
    archived_for: timedelta | None = timedelta(days=DEAD_LETTER_RETENTION_DAYS.default)
    history_for: timedelta | None = timedelta(days=HISTORY_RETENTION_DAYS.default)
    sent_for: timedelta | None = timedelta(days=SENT_EVENT_RETENTION_DAYS.default)


def read_upkeep_settings(environ: Mapping[str, str]) -> UpkeepSettings:
    """Read the settings; 0 switches a threshold off, and lets a retention never end.

    Raises:
        SettingsError: With every setting that has no usable value.
    """
    problems: list[Problem] = []
    settings = UpkeepSettings(
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
    )
    if problems:
        raise SettingsError(tuple(problems))
    return settings


@cache
def upkeep_settings() -> UpkeepSettings:
    """Return this process's settings, read once.

    Raises:
        SettingsError: See `read_upkeep_settings`.
    """
    return read_upkeep_settings(os.environ)


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
