import base64
from datetime import datetime

import pytest

from durable_retry.engine.base.text import Secret
from durable_retry.settings.alerts import AlertSettings, Format, Receiver, Thresholds, Webhook
from durable_retry.settings.group import SettingsError

SECRET = "whsec_" + base64.b64encode(bytes(32)).decode()


def test_without_settings_the_usual_ones_hold() -> None:
    assert AlertSettings.read({}) == AlertSettings()
    assert AlertSettings().thresholds == Thresholds()


def test_every_setting_counts() -> None:
    settings = AlertSettings.read(
        {
            "ALERT_DEAD_LETTERS": "5",
            "ALERT_DEAD_LETTER_AGE_SECONDS": "60",
            "ALERT_OUTBOX_LAG_SECONDS": "1.5",
            "ALERT_CIRCUIT_OPEN_SECONDS": "0",
            "ALERT_RETRIES_EXHAUSTED_PER_HOUR": "7",
            "ALERT_WEBHOOK": "pager:/alerts",
            "ALERT_WEBHOOK_URL": "https://a.example.com/x http://localhost:8080/y",
            "ALERT_WEBHOOK_SECRET": SECRET,
            "ALERT_SLACK_URL": "https://hooks.slack.com/services/T0/B0/X",
            "ALERT_TEAMS_URL": "https://b.example.com/workflows/1",
            "WEBSITE_HOSTNAME": "app.example.com",
        }
    )
    assert settings.thresholds == Thresholds(5, 60, 1.5, 0, 7)
    assert settings.alert_webhook == Webhook("pager", "/alerts")
    assert settings.receivers == (
        Receiver(Format.WEBHOOK, Secret("https://a.example.com/x")),
        Receiver(Format.WEBHOOK, Secret("http://localhost:8080/y")),
        Receiver(Format.SLACK, Secret("https://hooks.slack.com/services/T0/B0/X")),
        Receiver(Format.TEAMS, Secret("https://b.example.com/workflows/1")),
    )
    assert settings.alert_webhook_secret == (Secret(SECRET),)
    assert settings.website_hostname == "app.example.com"


def test_every_mistake_is_reported() -> None:
    with pytest.raises(SettingsError) as refusal:
        AlertSettings.read({"ALERT_DEAD_LETTERS": "-1", "ALERT_WEBHOOK": "pager"})
    assert [problem.pointer for problem in refusal.value.problems] == ["ALERT_DEAD_LETTERS", "ALERT_WEBHOOK"]


@pytest.mark.parametrize(
    "url",
    [
        "http://alerts.example.com/secret-path",
        "secret-path",
        "https://",
        "https://[",
        "https://a.example.com:x/",
    ],
)
def test_a_url_that_cannot_be_posted_to_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        AlertSettings.read({"ALERT_SLACK_URL": f"https://hooks.slack.com/services/T/B/X {url}"})
    (problem,) = refusal.value.problems
    assert problem.pointer == "ALERT_SLACK_URL"
    assert "URL 2 is not an https URL" in problem.detail
    assert "https://hooks.slack.com/services/T000/B000/XXXX" in problem.detail
    assert "secret-path" not in problem.detail


@pytest.mark.parametrize(("secret", "what"), [("", "is needed by"), ("tooshort", "openssl rand -base64 32")])
def test_a_webhook_is_signed(secret: str, what: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        AlertSettings.read({"ALERT_WEBHOOK_URL": "https://a.example.com/x", "ALERT_WEBHOOK_SECRET": secret})
    (problem,) = refusal.value.problems
    assert problem.pointer == "ALERT_WEBHOOK_SECRET"
    assert what in problem.detail


def test_a_receiver_is_named_without_its_path() -> None:
    receiver = Receiver(Format.SLACK, Secret("https://hooks.slack.com/services/T0/B0/X"))
    other = Receiver(Format.SLACK, Secret("https://hooks.slack.com/services/T0/B0/Y"))
    assert receiver.name.startswith("slack:hooks.slack.com:")
    assert receiver.name != other.name
    assert "T0" not in receiver.name + repr(receiver)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-21T{text}:00Z")


@pytest.mark.parametrize(
    ("hours", "instant", "is_quiet"),
    [
        ("22:00-07:00", "23:30", True),
        ("22:00-07:00", "06:59", True),
        ("22:00-07:00", "07:00", False),
        ("22:00-07:00 Europe/Berlin", "21:30", True),
        ("22:00-07:00 Europe/Berlin", "06:30", False),
        ("12:00-13:00", "12:30", True),
        ("12:00-13:00", "23:30", False),
    ],
)
def test_quiet_hours_hold_back_all_but_what_is_excepted(hours: str, instant: str, *, is_quiet: bool) -> None:
    settings = AlertSettings.read({"ALERT_QUIET_HOURS": hours, "ALERT_QUIET_EXCEPT": "not_starting"})
    assert settings.is_quiet("dead_letters", at(instant)) is is_quiet
    assert not settings.is_quiet("not_starting", at(instant))
    assert not AlertSettings().is_quiet("dead_letters", at(instant))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ALERT_QUIET_HOURS", "at night"),
        ("ALERT_QUIET_HOURS", "25:00-26:00"),
        ("ALERT_QUIET_HOURS", "22:00-22:00"),
        ("ALERT_QUIET_HOURS", "22:00-07:00 Mars/Crater"),
        ("ALERT_QUIET_EXCEPT", "not_startin"),
        ("ALERT_RUNBOOK_URL", "wiki"),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(name: str, text: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        AlertSettings.read({name: text})
    assert [problem.pointer for problem in refusal.value.problems] == [name]
