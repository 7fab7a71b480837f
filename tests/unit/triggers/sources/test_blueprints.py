"""The sources that there are, under which names, and with which retries of the platform."""

from collections.abc import Iterator
from typing import Any

import azure.durable_functions as df
import pytest

from durable_retry.engine.config.dependencies_file import parse_config
from durable_retry.services.sources import intake
from durable_retry.settings.configuration import using
from durable_retry.settings.group import SettingsError
from durable_retry.settings.sources import REQUIREMENTS, IntakeSettings, intake_settings
from durable_retry.triggers.sources.blueprints import source_blueprints
from tests.unit.settings.test_sources import CONNECTED

CONFIG = '[dependencies.reports]\nbase_url = "https://reports.example.com"\nretry = { max_attempts = 3 }'
SCHEDULE = """
[operations.nightly]
schedule = "0 30 3 * * *"
dependency = "reports"
request = { method = "GET" }
"""
ALWAYS = {
    "operations_queue": "queueTrigger",
    "operations_poison": "queueTrigger",
    "operations_event_grid": "eventGridTrigger",
}
GROWING = {
    "strategy": "exponential_backoff",
    "max_retry_count": "-1",
    "minimum_interval": "00:00:02",
    "maximum_interval": "00:02:00",
}
SDK = {"BuiltIn__HttpActivity", "BuiltIn__HttpPollOrchestrator"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No source has settings, and none is remembered."""
    for needed in REQUIREMENTS.values():
        for field in (*needed.settings, *filter(None, [needed.connection])):
            monkeypatch.delenv(IntakeSettings.name_of(field), raising=False)
    intake_settings.cache_clear()
    intake.cache_clear()
    with using(parse_config(CONFIG, {})):
        yield
    intake_settings.cache_clear()
    intake.cache_clear()


def registered() -> dict[str, Any]:
    """The functions of all sources by name."""
    app = df.DFApp()
    for blueprint in source_blueprints():
        app.register_functions(blueprint)
    found = ((function.get_function_name() or "", function) for function in app.get_functions())
    return {name: function for name, function in found if name not in SDK}


def retries(function: Any) -> dict[str, Any]:
    policy: dict[str, Any] = function.get_settings_dict("retry_policy") or {}
    return {name: value for name, value in policy.items() if value is not None and name != "setting_name"}


@pytest.mark.parametrize(("setting", "expected"), [({}, False), ({"SERVICE_BUS_SESSIONS": "true"}, True)])
def test_a_queue_with_sessions_is_read_session_by_session(
    monkeypatch: pytest.MonkeyPatch, setting: dict[str, str], *, expected: bool
) -> None:
    for name, value in (CONNECTED | setting).items():
        monkeypatch.setenv(name, value)
    trigger = registered()["operations_service_bus"].get_trigger().get_dict_repr()
    assert trigger["isSessionsEnabled"] is expected


def test_without_settings_there_are_the_queues_and_event_grid() -> None:
    found = {name: function.get_trigger().get_binding_name() for name, function in registered().items()}
    assert found == ALWAYS


def test_each_source_with_settings_has_its_name_its_trigger_and_its_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (CONNECTED | {"SCHEDULED_OPERATIONS": SCHEDULE}).items():
        monkeypatch.setenv(name, value)
    found = registered()
    assert {name: function.get_trigger().get_binding_name() for name, function in found.items()} == {
        **ALWAYS,
        "operations_service_bus": "serviceBusTrigger",
        "operations_event_hubs": "eventHubTrigger",
        "operations_cosmos_db": "cosmosDBTrigger",
        "operations_kafka": "kafkaTrigger",
        "scheduled_nightly": "timerTrigger",
    }
    assert {name: each for name, function in found.items() if (each := retries(function))} == {
        "operations_event_hubs": GROWING,
        "operations_cosmos_db": GROWING,
        "operations_kafka": GROWING,
        "scheduled_nightly": {
            "strategy": "fixed_delay",
            "max_retry_count": "-1",
            "delay_interval": "00:00:15",
        },
    }


def test_secrets_of_kafka_are_left_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (CONNECTED | {"KAFKA_PASSWORD": "hunter2-secret"}).items():
        monkeypatch.setenv(name, value)
    trigger = registered()["operations_kafka"].get_trigger().get_dict_repr()
    assert trigger["password"] == "%KAFKA_PASSWORD%"
    assert "hunter2-secret" not in str(trigger)


def test_kafka_is_spoken_to_as_its_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"KAFKA_PROTOCOL": "SaslSsl", "KAFKA_AUTHENTICATION": "Plain"}
    for name, value in (CONNECTED | chosen).items():
        monkeypatch.setenv(name, value)
    trigger = registered()["operations_kafka"].get_trigger().get_dict_repr()
    assert (str(trigger["protocol"]), str(trigger["authenticationMode"])) == ("SASLSSL", "PLAIN")
    monkeypatch.setenv("KAFKA_PROTOCOL", "carrier pigeon")
    intake_settings.cache_clear()
    with pytest.raises(SettingsError, match="KAFKA_PROTOCOL: must be one of"):
        source_blueprints()


def test_a_schedule_of_an_unknown_dependency_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDULED_OPERATIONS", SCHEDULE.replace("reports", "nobody"))
    with pytest.raises(SettingsError, match="SCHEDULED_OPERATIONS/operations/nightly/dependency"):
        source_blueprints()
