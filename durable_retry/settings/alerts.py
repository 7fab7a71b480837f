"""App settings of alerts: thresholds, and who receives a message."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, time
from enum import StrEnum
from functools import cache, partial
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator

from durable_retry.engine.base.text import Secret
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.engine.config.dependency import MOST_DEAD_LETTERS, WebhookSecretError, signing_key
from durable_retry.settings.group import SettingsGroup, seconds, setting

_WEBHOOK: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}):(/.*)")
_QUIET: Final = re.compile(r"([0-2][0-9]:[0-5][0-9])-([0-2][0-9]:[0-5][0-9])(?: ([A-Za-z0-9_+/-]+))?")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HOW_TO_MAKE: Final = "make one with: openssl rand -base64 32"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Above these values an alert is raised; 0 switches one off."""

    dead_letters: float = 100.0  # number of open dead letters
    dead_letter_age_seconds: float = 86_400.0  # age of the oldest open dead letter
    outbox_lag_seconds: float = 300.0  # age of the oldest event that is not sent yet
    circuit_open_seconds: float = 300.0  # how long a circuit has let no call through
    # Number of operations that became dead letters in the last hour because their attempts were used up.
    retries_exhausted_per_hour: float = 50.0
    not_starting: float = 120.0  # for how many seconds accepted operations have not begun
    lane_blocked_seconds: float = 300.0  # how long a dead letter has blocked the lane of an order key
    task_hub_away_seconds: float = 30.0  # how long the task hub has not answered


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where alerts are sent: a configured dependency, and the path there."""

    dependency: str
    path: str

    @property
    def name(self) -> str:
        """The name under which deliveries are kept."""
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
        """The name under which deliveries are kept; another URL is another receiver."""
        return f"{self.format}:{self.host}:{sha256(self.url.reveal().encode()).hexdigest()[:8]}"


def _parsed_webhook(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    match = _WEBHOOK.fullmatch(text)
    if match is None:
        raise ValueError(f"must look like dependency:/path, not {text!r}")
    return Webhook(match[1], match[2])


def _parsed_receivers(form: Format, example: str, text: Any) -> Any:
    if not isinstance(text, str):
        return text
    urls = tuple(dict.fromkeys(text.split()))
    # Without the value: its path may be a credential.
    how = f"write one such as {example}, several with a space between"
    wrong = [
        Problem("", f"URL {number} is not an https URL with a host; {how}")
        for number, url in enumerate(urls, 1)
        if not _is_postable(url)
    ]
    if wrong:
        raise InvalidInputError(wrong)
    return tuple(Receiver(form, Secret(url)) for url in urls)


def _parsed_runbook(text: Any) -> Any:
    if isinstance(text, str) and not _is_postable(text):
        raise ValueError("must be an https URL with a host")
    return text


def _is_postable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    is_local = parts.scheme == "http" and host in _LOOPBACK
    return bool(host) and (parts.scheme == "https" or is_local) and url.isascii() and url.isprintable()


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A time of each day in which nobody is woken, such as 22:00 to 07:00; its end is not in it."""

    begin: time
    end: time
    zone: ZoneInfo

    def covers(self, now: datetime) -> bool:
        """Return whether an instant lies in it."""
        at = now.astimezone(self.zone).time()
        if self.begin <= self.end:
            return self.begin <= at < self.end
        return at >= self.begin or at < self.end


def _parsed_quiet_hours(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    match = _QUIET.fullmatch(text)
    if match is None:
        raise ValueError(f"must look like 22:00-07:00 or 22:00-07:00 Europe/Berlin, not {text!r}")
    begin, end, zone = match.groups("UTC")
    if begin == end:
        raise ValueError(f"begins and ends at {begin}, which is no time at all")
    try:
        return QuietHours(time.fromisoformat(begin), time.fromisoformat(end), ZoneInfo(zone))
    except (ValueError, ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"is no time of a day in a known zone: {error}") from None


def _parsed_conditions(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    names = {field.name for field in fields(Thresholds)}
    if unknown := sorted(set(text.split()) - names):
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(sorted(names))}")
    return frozenset(text.split())


def _signing_keys(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    secrets = tuple(Secret(part) for part in text.split())
    wrong = []
    for number, secret in enumerate(secrets, 1):
        try:
            signing_key(secret)
        except WebhookSecretError as error:
            wrong.append(Problem("", f"secret {number} {error}; {_HOW_TO_MAKE}"))
    if wrong:
        raise InvalidInputError(wrong)
    return secrets


def _urls_validator(form: Format, example: str) -> BeforeValidator:
    return BeforeValidator(partial(_parsed_receivers, form, example))


_DEFAULTS: Final = Thresholds()


class AlertSettings(SettingsGroup):
    """When alerts are raised, and who gets them; 0 switches a threshold off."""

    heading: ClassVar[str] = "Alerts"

    alert_dead_letters: float = setting(
        "Alert when there are more open dead letters; 0 = off.",
        _DEFAULTS.dead_letters,
        least=0,
        most=MOST_DEAD_LETTERS,
    )
    alert_dead_letter_age_seconds: float = seconds(
        "Alert when the oldest open dead letter is older; 0 = off.", _DEFAULTS.dead_letter_age_seconds
    )
    alert_outbox_lag_seconds: float = seconds(
        "Alert when an event waits longer to be sent; 0 = off.", _DEFAULTS.outbox_lag_seconds
    )
    alert_circuit_open_seconds: float = seconds(
        "Alert when a circuit is open for longer; 0 = off.", _DEFAULTS.circuit_open_seconds
    )
    alert_retries_exhausted_per_hour: float = setting(
        "Alert when more operations used up their attempts in the last hour; 0 = off.",
        _DEFAULTS.retries_exhausted_per_hour,
        least=0,
    )
    alert_not_starting_seconds: float = seconds(
        "Alert, and degraded health, when accepted operations have not begun for longer; 0 = off.",
        _DEFAULTS.not_starting,
    )
    alert_lane_blocked_seconds: float = seconds(
        "Alert when a dead letter blocks the lane of an order key for longer; 0 = off.",
        _DEFAULTS.lane_blocked_seconds,
    )
    alert_task_hub_away_seconds: float = seconds(
        "Alert when the task hub has not answered for longer, by checks a minute apart; 0 = off.",
        _DEFAULTS.task_hub_away_seconds,
    )
    alert_webhook: Annotated[Webhook | None, BeforeValidator(_parsed_webhook)] = setting(
        "Dependency that receives alerts, `dependency:/path`, by an operation of its own. Not set: none.",
        None,
    )
    alert_webhook_url: Annotated[
        tuple[Receiver, ...], _urls_validator(Format.WEBHOOK, "https://alerts.example.com/durable-retry")
    ] = setting(
        "https URLs that receive alerts as JSON, signed, separated by spaces. Not set: none.", (), secret=True
    )
    alert_webhook_secret: Annotated[tuple[Secret, ...], BeforeValidator(_signing_keys)] = setting(
        "Signs what `ALERT_WEBHOOK_URL` gets: base64 of 24 to 64 bytes, with or without `whsec_` before it; "
        "several, separated by spaces, all sign.",
        (),
        secret=True,
    )
    alert_slack_url: Annotated[
        tuple[Receiver, ...], _urls_validator(Format.SLACK, "https://hooks.slack.com/services/T000/B000/XXXX")
    ] = setting(
        "Incoming webhooks of Slack that receive alerts, separated by spaces. Not set: none.", (), secret=True
    )
    alert_teams_url: Annotated[
        tuple[Receiver, ...], _urls_validator(Format.TEAMS, "https://example.logic.azure.com/workflows/...")
    ] = setting(
        "Webhooks of Teams workflows that receive alerts, separated by spaces. Not set: none.",
        (),
        secret=True,
    )
    alert_runbook_url: Annotated[str, BeforeValidator(_parsed_runbook)] = setting(
        "URL of what to do, for messages about alerts; `{condition}` in it stands for the condition. "
        "Not set: no link."
    )
    alert_quiet_hours: Annotated[QuietHours | None, BeforeValidator(_parsed_quiet_hours)] = setting(
        "Hours of each day in which messages about what is raised wait for their end, such as "
        "`22:00-07:00 Europe/Berlin` (UTC without a zone). Not set: none.",
        None,
    )
    alert_quiet_except: Annotated[frozenset[str], BeforeValidator(_parsed_conditions)] = setting(
        "Conditions whose messages are sent in quiet hours too, separated by spaces, such as `not_starting`.",
        frozenset(),
    )
    website_hostname: str = setting(
        "Host name of the Function App; Azure sets it. Messages about alerts link to the dashboard there."
    )

    @classmethod
    def mistakes_across(cls, environ: Mapping[str, str]) -> Iterator[Problem]:
        """Refuse messages that nobody could check."""
        url, secret = cls.name_of("alert_webhook_url"), cls.name_of("alert_webhook_secret")
        texts = cls.texts_in(environ)
        if url in texts and not texts.get(secret, "").split():
            yield Problem(secret, f"is needed by {url}, whose messages are signed; {_HOW_TO_MAKE}")

    @property
    def thresholds(self) -> Thresholds:
        """Above these an alert is raised."""
        return Thresholds(
            dead_letters=self.alert_dead_letters,
            dead_letter_age_seconds=self.alert_dead_letter_age_seconds,
            outbox_lag_seconds=self.alert_outbox_lag_seconds,
            circuit_open_seconds=self.alert_circuit_open_seconds,
            retries_exhausted_per_hour=self.alert_retries_exhausted_per_hour,
            not_starting=self.alert_not_starting_seconds,
            lane_blocked_seconds=self.alert_lane_blocked_seconds,
            task_hub_away_seconds=self.alert_task_hub_away_seconds,
        )

    def is_quiet(self, kind: str, now: datetime) -> bool:
        """Return whether messages about a kind of condition wait for the end of the quiet hours."""
        hours = self.alert_quiet_hours
        return hours is not None and kind not in self.alert_quiet_except and hours.covers(now)

    @property
    def receivers(self) -> tuple[Receiver, ...]:
        """Every URL that receives alerts."""
        return (*self.alert_webhook_url, *self.alert_slack_url, *self.alert_teams_url)


@cache
def alert_settings() -> AlertSettings:
    """Return this process's settings, read once; see `SettingsGroup.read`."""
    return AlertSettings.read(os.environ)
