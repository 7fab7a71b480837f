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
    archived_for: timedelta | None = timedelta(days=30)
    history_for: timedelta | None = timedelta(days=7)
    sent_for: timedelta | None = timedelta(days=7)


def read_upkeep_settings(environ: Mapping[str, str]) -> UpkeepSettings:
    """Read the settings; 0 switches a threshold off, and lets a retention never end.

    Raises:
        SettingsError: With every setting that has no usable value.
    """
    problems: list[Problem] = []
    usual = Thresholds()
    thresholds = Thresholds(
        dead_letters=_number(environ, "ALERT_DEAD_LETTERS", usual.dead_letters, problems),
        dead_letter_age_seconds=_number(
            environ, "ALERT_DEAD_LETTER_AGE_SECONDS", usual.dead_letter_age_seconds, problems
        ),
        outbox_lag_seconds=_number(environ, "ALERT_OUTBOX_LAG_SECONDS", usual.outbox_lag_seconds, problems),
        circuit_open_seconds=_number(
            environ, "ALERT_CIRCUIT_OPEN_SECONDS", usual.circuit_open_seconds, problems
        ),
    )
    settings = UpkeepSettings(
        thresholds=thresholds,
        webhook=_webhook(environ.get("ALERT_WEBHOOK", ""), problems),
        archived_for=_days(environ, "DEAD_LETTER_RETENTION_DAYS", 30, problems),
        history_for=_days(environ, "HISTORY_RETENTION_DAYS", 7, problems),
        sent_for=_days(environ, "SENT_EVENT_RETENTION_DAYS", 7, problems),
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


def _number(environ: Mapping[str, str], name: str, usual: float, problems: list[Problem]) -> float:
    text = environ.get(name, "")
    if not text:
        return usual
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", text):
        problems.append(Problem(name, f"must be a number, 0 to switch it off, not {text!r}"))
        return usual
    return float(text)


def _days(environ: Mapping[str, str], name: str, usual: float, problems: list[Problem]) -> timedelta | None:
    days = _number(environ, name, usual, problems)
    if days > _MOST_DAYS:
        problems.append(Problem(name, f"must be at most {_MOST_DAYS} days, or 0 for ever"))
        return None
    return None if days == 0 else timedelta(days=days)


_MOST_DAYS: Final = 36_500


def _webhook(text: str, problems: list[Problem]) -> Webhook | None:
    if not text:
        return None
    found = _WEBHOOK.fullmatch(text)
    if found is None:
        problems.append(Problem("ALERT_WEBHOOK", f"must look like dependency:/path, not {text!r}"))
        return None
    return Webhook(found[1], found[2])
