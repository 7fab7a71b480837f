import base64

import pytest

from durable_retry.base.text import Secret
from durable_retry.settings.group import SettingsError
from durable_retry_console.alerts.settings import AlertSettings

SECRET = "whsec_" + base64.b64encode(bytes(32)).decode()


def test_without_settings_the_usual_ones_hold() -> None:
    assert AlertSettings.read({}) == AlertSettings()
    assert AlertSettings().receivers == {}


def test_every_setting_counts() -> None:
    settings = AlertSettings.read(
        {
            "ALERT_DEAD_LETTERS": "5",
            "ALERT_DEAD_LETTER_AGE_SECONDS": "60",
            "ALERT_OUTBOX_LAG_SECONDS": "1.5",
            "ALERT_CIRCUIT_OPEN_SECONDS": "0",
            "ALERT_CREDENTIAL_REFUSED_SECONDS": "6",
            "ALERT_RETRIES_EXHAUSTED_PER_HOUR": "7",
            "ALERT_NOT_STARTING_SECONDS": "8",
            "ALERT_LANE_BLOCKED_SECONDS": "9",
            "ALERT_TASK_HUB_AWAY_SECONDS": "10",
            "ALERT_HELD_SECONDS": "11",
            "ALERT_PAUSED_SECONDS": "12",
            "ALERT_LACKING_SECONDS": "13",
            "ALERT_WEBHOOK_URL": "http://localhost:8080/y",
            "ALERT_WEBHOOK_SECRET": SECRET,
            "ALERT_SLACK_URL": "https://hooks.slack.com/services/T0/B0/X",
            "WEBSITE_HOSTNAME": "app.example.com",
        }
    )
    assert settings.thresholds == {
        "dead_letters": 5,
        "dead_letter_age_seconds": 60,
        "outbox_lag_seconds": 1.5,
        "circuit_open_seconds": 0,
        "credential_refused_seconds": 6,
        "retries_exhausted_per_hour": 7,
        "not_starting": 8,
        "stuck_seconds": 180,
        "lane_blocked_seconds": 9,
        "task_hub_away_seconds": 10,
        "held": 11,
        "paused_seconds": 12,
        "lacking_seconds": 13,
    }
    assert settings.receivers == {
        "webhook": Secret("http://localhost:8080/y"),
        "slack": Secret("https://hooks.slack.com/services/T0/B0/X"),
    }
    assert settings.alert_webhook_secret == (Secret(SECRET),)
    assert settings.website_hostname == "app.example.com"


def test_a_threshold_that_no_count_passes_is_refused() -> None:
    with pytest.raises(SettingsError, match="at most 998, not '999'"):
        AlertSettings.read({"ALERT_RETRIES_EXHAUSTED_PER_HOUR": "999"})


def test_every_mistake_is_reported() -> None:
    with pytest.raises(SettingsError) as refusal:
        AlertSettings.read({"ALERT_DEAD_LETTERS": "-1", "ALERT_RUNBOOK_URL": "wiki"})
    assert [problem.pointer for problem in refusal.value.problems] == [
        "ALERT_DEAD_LETTERS",
        "ALERT_RUNBOOK_URL",
    ]


@pytest.mark.parametrize(
    "url",
    [
        "http://alerts.example.com/secret-path",
        "secret-path",
        "https://",
        "https://[",
        "https://a.example.com:x/",
        "https://a.example.com/secret-path https://b.example.com/secret-path",
    ],
)
def test_a_url_that_cannot_be_posted_to_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        AlertSettings.read({"ALERT_SLACK_URL": url})
    (problem,) = refusal.value.problems
    assert problem.pointer == "ALERT_SLACK_URL"
    assert "is not an https URL" in problem.detail
    assert "secret-path" not in problem.detail


@pytest.mark.parametrize(("secret", "what"), [("", "is needed by"), ("tooshort", "openssl rand -base64 32")])
def test_a_webhook_is_signed(secret: str, what: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        AlertSettings.read({"ALERT_WEBHOOK_URL": "https://a.example.com/x", "ALERT_WEBHOOK_SECRET": secret})
    (problem,) = refusal.value.problems
    assert problem.pointer == "ALERT_WEBHOOK_SECRET"
    assert what in problem.detail


def test_keys_that_were_read_already_are_taken_as_they_are() -> None:
    assert AlertSettings(alert_webhook_secret=(Secret(SECRET),)).alert_webhook_secret == (Secret(SECRET),)
