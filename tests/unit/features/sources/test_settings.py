from typing import Any

import pytest

from durable_retry.features.sources.settings import SourceSettings
from durable_retry.settings.group import SettingsError
from durable_retry.settings.intake import IntakeSettings

CONNECTED = {
    "SERVICE_BUS_QUEUE": "orders",
    "SERVICE_BUS_CONNECTION": "Endpoint=sb://x",
    "EVENT_HUB": "clicks",
    "EVENT_HUB_CONNECTION__fullyQualifiedNamespace": "x.servicebus.windows.net",
    "COSMOS_DATABASE": "shop",
    "COSMOS_CONTAINER": "orders",
    "COSMOS_CONNECTION__accountEndpoint": "https://x",
    "KAFKA_BROKERS": "x:9092",
    "KAFKA_TOPIC": "orders",
}


def read(**environ: str) -> SourceSettings:
    return SourceSettings.read(environ)


def mistakes(group: Any = SourceSettings, **environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        group.read(environ)
    return [problem.pointer for problem in caught.value.problems]


def test_without_settings_there_are_no_sources_and_the_defaults_hold() -> None:
    assert read() == SourceSettings()


def test_a_source_with_its_settings_is_there_and_has_a_scope_for_its_ids() -> None:
    assert read(**CONNECTED).places == {
        "service_bus": "orders",
        "event_hubs": "clicks",
        "cosmos_db": "shop/orders",
        "kafka": "orders",
    }


@pytest.mark.parametrize("name", sorted(CONNECTED))
def test_half_of_a_source_names_the_other_half(name: str) -> None:
    rest = {each: value for each, value in CONNECTED.items() if each != name}
    assert mistakes(**rest) == [name.partition("__")[0]]


def test_an_empty_setting_is_none() -> None:
    assert read(**dict.fromkeys(CONNECTED, "")).places == {}


def test_a_pointer_that_cannot_be_used_is_reported() -> None:
    assert mistakes(COSMOS_OPERATION="operation") == ["COSMOS_OPERATION"]
    assert mistakes(IntakeSettings, KEY_POINTERS_KAFKA="/a, b") == ["KEY_POINTERS_KAFKA"]


def test_keys_are_made_of_fields_by_source() -> None:
    settings = IntakeSettings.read(
        {"KEY_POINTERS": "/a, /b", "KEY_POINTERS_KAFKA": "/c", "KEY_POINTERS_EVENT_GRID": ""}
    )
    found = {source: settings.pointers_for(source) for source in ("service_bus", "kafka", "event_grid")}
    assert found == {"service_bus": ("/a", "/b"), "kafka": ("/c",), "event_grid": ()}


def test_the_operation_of_a_document_stands_at_a_pointer() -> None:
    assert read(**CONNECTED, COSMOS_OPERATION="/operation").cosmos_operation == "/operation"
