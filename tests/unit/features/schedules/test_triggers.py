from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from durable_retry.features.schedules.settings import schedules
from durable_retry.features.schedules.triggers import SOURCES, last_fire
from durable_retry.intake import blueprints
from durable_retry.intake.blueprints import source_blueprints
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import Registration, using
from durable_retry.settings.group import SettingsError

CONFIG = '[dependencies.reports]\nbase_url = "https://reports.example.com"\nretry = { max_attempts = 3 }'
SCHEDULE = """
[operations.nightly]
schedule = "0 30 3 * * *"
dependency = "reports"
request = { method = "GET" }
"""
NINE = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)

TIMERS = SOURCES["timer"].blueprint


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """None has a schedule, and none is remembered."""
    monkeypatch.delenv("SCHEDULED_OPERATIONS", raising=False)
    schedules.cache_clear()
    with using(parse_config(CONFIG, {})):
        yield
    schedules.cache_clear()


def test_without_a_schedule_there_is_no_timer() -> None:
    assert TIMERS() is None


def test_an_app_that_names_the_timer_needs_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blueprints, "registration", lambda: Registration(sources=frozenset({"timer"})))
    with pytest.raises(SettingsError, match="timer needs the app setting SCHEDULED_OPERATIONS"):
        source_blueprints()


def test_each_schedule_has_a_timer_that_the_platform_repeats_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDULED_OPERATIONS", SCHEDULE)
    blueprint: Any = TIMERS()
    functions = {each._function.get_function_name(): each._function for each in blueprint._function_builders}
    function = functions["scheduled_nightly"]
    trigger = function.get_trigger().get_dict_repr()
    assert (trigger["type"], trigger["schedule"]) == ("timerTrigger", "0 30 3 * * *")
    policy = function.get_settings_dict("retry_policy")
    assert {name: policy[name] for name in ("strategy", "max_retry_count", "delay_interval")} == {
        "strategy": "fixed_delay",
        "max_retry_count": "-1",
        "delay_interval": "00:00:15",
    }


def test_a_schedule_of_an_unknown_dependency_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDULED_OPERATIONS", SCHEDULE.replace("reports", "nobody"))
    with pytest.raises(SettingsError, match="SCHEDULED_OPERATIONS/operations/nightly/dependency"):
        TIMERS()


@pytest.mark.parametrize(
    ("status", "last"),
    [
        ({"Last": "2026-11-21T09:00:00+00:00"}, NINE),
        ({"Last": "2026-11-21T10:00:00.0000000+01:00"}, NINE),
        ({"Last": "2026-11-21T09:00:00"}, NINE),
        ({"Last": "0001-01-01T00:00:00"}, None),
        ({"Last": "0001-01-01T00:00:00+00:00"}, None),
        ({"Last": None}, None),
        ({"Last": "nonsense"}, None),
        ({"Last": 5}, None),
        ({}, None),
    ],
)
def test_the_hosts_record_says_when_a_timer_fired_last(status: dict[str, Any], last: datetime | None) -> None:
    assert last_fire(status) == last
