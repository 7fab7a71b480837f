import base64
from collections.abc import Iterator
from typing import Any

import azure.durable_functions as df
import azure.functions as func
import pytest

from durable_retry.base.trace_context import TraceContext
from durable_retry.features.sources.settings import SourceSettings, source_settings
from durable_retry.features.sources.triggers import SOURCES, event_hubs_arrivals, kafka_arrivals
from durable_retry.intake import blueprints
from durable_retry.intake.blueprints import source_blueprints
from durable_retry.settings.configuration import Registration
from durable_retry.settings.group import SettingsError
from tests.unit.features.sources.test_settings import CONNECTED

GROWING = {
    "strategy": "exponential_backoff",
    "max_retry_count": "-1",
    "minimum_interval": "00:00:02",
    "maximum_interval": "00:02:00",
}
CALLER = TraceContext(f"00-{'a' * 32}-{'a' * 16}-01", "vendor=a")
SDK = {"BuiltIn__HttpActivity", "BuiltIn__HttpPollOrchestrator"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No source has settings, and none is remembered."""
    for setting in SourceSettings.described():
        monkeypatch.delenv(setting.name, raising=False)
    source_settings.cache_clear()
    yield
    source_settings.cache_clear()


def registered() -> dict[str, Any]:
    app = df.DFApp()
    for blueprint in filter(None, (source.blueprint() for source in SOURCES.values())):
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
    for name in ("operations_service_bus", "operations_service_bus_topic"):
        assert registered()[name].get_trigger().get_dict_repr()["isSessionsEnabled"] is expected


def test_their_own_dead_letter_queues_are_read_where_a_setting_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (
        CONNECTED | {"SERVICE_BUS_DEAD_LETTERS": "true", "SERVICE_BUS_SESSIONS": "true"}
    ).items():
        monkeypatch.setenv(name, value)
    found = registered()
    queue, topic = (
        found[name].get_trigger().get_dict_repr()
        for name in ("dead_letters_service_bus", "dead_letters_service_bus_topic")
    )
    assert queue["queueName"] == "%SERVICE_BUS_QUEUE%/$deadletterqueue"
    assert topic["topicName"] == "%SERVICE_BUS_TOPIC%"
    assert topic["subscriptionName"] == "%SERVICE_BUS_SUBSCRIPTION%/$deadletterqueue"
    assert {queue["isSessionsEnabled"], topic["isSessionsEnabled"]} == {False}


def test_without_settings_there_is_event_grid() -> None:
    found = {name: function.get_trigger().get_binding_name() for name, function in registered().items()}
    assert found == {"operations_event_grid": "eventGridTrigger"}


def test_each_source_with_settings_has_its_name_its_trigger_and_its_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in CONNECTED.items():
        monkeypatch.setenv(name, value)
    found = registered()
    assert {name: function.get_trigger().get_binding_name() for name, function in found.items()} == {
        "operations_event_grid": "eventGridTrigger",
        "operations_service_bus": "serviceBusTrigger",
        "operations_service_bus_topic": "serviceBusTrigger",
        "operations_event_hubs": "eventHubTrigger",
        "operations_cosmos_db": "cosmosDBTrigger",
        "operations_kafka": "kafkaTrigger",
    }
    assert {name: each for name, function in found.items() if (each := retries(function))} == {
        "operations_event_hubs": GROWING,
        "operations_cosmos_db": GROWING,
        "operations_kafka": GROWING,
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
    source_settings.cache_clear()
    with pytest.raises(SettingsError, match="KAFKA_PROTOCOL: must be one of"):
        registered()


def names_of(monkeypatch: pytest.MonkeyPatch, *sources: str) -> set[str | None]:
    """The functions of an app that names its sources."""
    monkeypatch.setattr(blueprints, "registration", lambda: Registration(sources=frozenset(sources)))
    builders = (builder for blueprint in source_blueprints() for builder in blueprint._function_builders)
    return {builder._function.get_function_name() for builder in builders}


def test_a_source_that_is_configured_but_not_named_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CONNECTED.items():
        monkeypatch.setenv(name, value)
    assert "operations_kafka" in names_of(monkeypatch, "kafka", "event_grid")
    assert "operations_kafka" not in names_of(monkeypatch, "event_grid")


def test_a_source_that_is_named_needs_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="kafka needs the app setting KAFKA_BROKERS and KAFKA_TOPIC"):
        names_of(monkeypatch, "kafka")


def test_an_event_of_event_hubs_has_it_in_its_properties() -> None:
    event = func.EventHubEvent(body=b"{}", trigger_metadata={})
    event._trigger_metadata_pyobj = {"PropertiesArray": [{"Diagnostic-Id": CALLER.traceparent}]}
    (arrival,) = event_hubs_arrivals([event], "clicks")
    assert arrival.trace == TraceContext(CALLER.traceparent)


@pytest.mark.parametrize("others", [[], [{"Key": "a"}], [{"Key": "a", "Value": "%%%"}], ["text"], [None]])
def test_an_event_of_kafka_has_it_in_its_headers(others: list[Any]) -> None:
    headers = [
        {"Key": name, "Value": base64.b64encode(value.encode()).decode()}
        for name, value in CALLER.to_json().items()
    ]
    event = func.KafkaEvent(body=b"{}", topic="t", partition=0, offset=1, headers=[*others, *headers])
    (arrival,) = kafka_arrivals([event], "t")
    assert arrival.trace == CALLER


def test_an_event_of_kafka_without_headers_has_none() -> None:
    (arrival,) = kafka_arrivals([func.KafkaEvent(body=b"{}", topic="t", partition=0, offset=1)], "t")
    assert arrival.trace is None


def test_an_event_of_kafka_without_a_topic_has_that_of_the_settings() -> None:
    (arrival,) = kafka_arrivals([func.KafkaEvent(body=b"{}", topic=None, partition=0, offset=1)], "orders")
    assert (arrival.place, arrival.native_id) == ("orders", "orders-0-1")
