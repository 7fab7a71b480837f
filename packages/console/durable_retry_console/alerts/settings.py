"""App settings of alerts: thresholds, and who receives a message."""

import os
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator

from durable_retry.base.signatures import WebhookSecretError, signing_key
from durable_retry.base.text import Secret
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.settings.group import SettingsGroup, seconds, setting
from durable_retry_console.alerts.rules import CONDITIONS, HELD, MOST_EXHAUSTED, NOT_STARTING, STUCK, TEST
from durable_retry_console.keys import MOST_DEAD_LETTERS
from durable_retry_console.optional import of_feature

type ReceiverName = Literal["webhook", "slack"]
"""Who receives alerts, by the form of the messages."""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HOW_TO_MAKE: Final = "make one with: openssl rand -base64 32"


def _checked_url(text: Any) -> Any:
    if isinstance(text, str) and not _is_postable(text):
        # Without the value: its path may be a credential.
        raise ValueError("is not an https URL with a host, such as https://hooks.example.com/alerts")
    return text


def _secret_url(text: Any) -> Any:
    return Secret(_checked_url(text)) if isinstance(text, str) else text


def _is_postable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    is_local = parts.scheme == "http" and host in _LOOPBACK
    is_plain = url.isascii() and url.isprintable() and " " not in url
    return bool(host) and (parts.scheme == "https" or is_local) and is_plain


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


_THRESHOLDS: Final = {name: f"alert_{name}" for name in CONDITIONS if name not in {STUCK, TEST}} | {
    NOT_STARTING: "alert_not_starting_seconds",
    HELD: "alert_held_seconds",
}
_STUCK_AFTER: Final = "durable_retry.features.standstill.settings:stuck_after_seconds"


class AlertSettings(SettingsGroup):
    """When alerts are raised, and who gets them; 0 switches a threshold off."""

    heading: ClassVar[str] = "Alerts"

    alert_dead_letters: float = setting(
        "Alert when there are more open dead letters; 0 = off.", 100.0, least=0, most=MOST_DEAD_LETTERS
    )
    alert_dead_letter_age_seconds: float = seconds(
        "Alert when the oldest open dead letter is older; 0 = off.", 86_400.0
    )
    alert_outbox_lag_seconds: float = seconds("Alert when an event waits longer to be sent; 0 = off.", 300.0)
    alert_circuit_open_seconds: float = seconds("Alert when a circuit is open for longer; 0 = off.", 300.0)
    alert_paused_seconds: float = seconds(
        "Alert when a dependency asks for a pause of all calls that is longer; 0 = off.", 300.0
    )
    alert_credential_refused_seconds: float = seconds(
        "Alert when a dependency refuses the app's credential for longer; 0 = off.", 60.0
    )
    alert_retries_exhausted_per_hour: float = setting(
        "Alert when more operations used up their attempts in the last hour; 0 = off.",
        50.0,
        least=0,
        most=MOST_EXHAUSTED,
    )
    alert_not_starting_seconds: float = seconds(
        "Alert, and degraded health, when accepted operations have not begun for longer; 0 = off.", 120.0
    )
    alert_lane_blocked_seconds: float = seconds(
        "Alert when a dead letter blocks the lane of an order key for longer; 0 = off.", 300.0
    )
    alert_task_hub_away_seconds: float = seconds(
        "Alert when the task hub has not answered for longer, by checks a minute apart; 0 = off.", 30.0
    )
    alert_held_seconds: float = seconds(
        "Alert when its policy has held an operation for longer; 0 = off.", 60.0
    )
    alert_lacking_seconds: float = seconds(
        "Alert when an operation waits for longer for a handler or a dependency that the app does not have; "
        "0 = off.",
        60.0,
    )
    alert_webhook_url: Annotated[Secret | None, BeforeValidator(_secret_url)] = setting(
        "https URL that receives alerts as JSON, signed. Not set: none.", None, secret=True
    )
    alert_webhook_secret: Annotated[tuple[Secret, ...], BeforeValidator(_signing_keys)] = setting(
        "Signs what `ALERT_WEBHOOK_URL` gets: base64 of 24 to 64 bytes, with or without `whsec_` before it; "
        "several, separated by spaces, all sign.",
        (),
        secret=True,
    )
    alert_slack_url: Annotated[Secret | None, BeforeValidator(_secret_url)] = setting(
        "Incoming webhook of Slack, or of what takes the same text, that receives alerts. Not set: none.",
        None,
        secret=True,
    )
    alert_runbook_url: Annotated[str, BeforeValidator(_checked_url)] = setting(
        "URL of what to do, for messages about alerts; `{condition}` in it stands for the condition. "
        "Not set: no link."
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
    def thresholds(self) -> dict[str, float]:
        """Above which value each condition is raised, by its name."""
        stuck_after = of_feature("standstill", _STUCK_AFTER)
        own = {name: getattr(self, member) for name, member in _THRESHOLDS.items()}
        return own | {STUCK: 0.0 if stuck_after is None else stuck_after()}

    @property
    def receivers(self) -> dict[ReceiverName, Secret]:
        """Each URL that receives alerts; its path is often a credential."""
        urls: dict[ReceiverName, Secret | None] = {
            "webhook": self.alert_webhook_url,
            "slack": self.alert_slack_url,
        }
        return {name: url for name, url in urls.items() if url is not None}


@cache
def alert_settings() -> AlertSettings:
    """Return this process's settings, read once; see `SettingsGroup.read`."""
    return AlertSettings.read(os.environ)
