from pathlib import Path
from typing import Any

import pytest

from durable_retry.settings.group import SettingsError
from durable_retry.settings.sources import IntakeSettings

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
SCHEDULE = """
[operations.a]
schedule = "0 * * * * *"
dependency = "reports"
request = { method = "GET" }
"""


def read(**environ: str) -> IntakeSettings:
    return IntakeSettings.read(environ)


def mistakes(**environ: str) -> dict[str, str]:
    with pytest.raises(SettingsError) as caught:
        read(**environ)
    return {problem.pointer: problem.detail for problem in caught.value.problems}


def test_without_settings_there_are_no_sources_and_the_defaults_hold() -> None:
    assert read() == IntakeSettings()


def test_a_source_with_its_settings_is_there() -> None:
    assert read(**CONNECTED).places == {
        "service_bus": "orders",
        "event_hubs": "clicks",
        "cosmos_db": "shop/orders",
        "kafka": "x:9092/orders",
    }


@pytest.mark.parametrize("name", sorted(CONNECTED))
def test_half_of_a_source_names_the_other_half(name: str) -> None:
    rest = {each: value for each, value in CONNECTED.items() if each != name}
    assert list(mistakes(**rest)) == [name.partition("__")[0]]


def test_an_empty_setting_is_none() -> None:
    assert read(**dict.fromkeys(CONNECTED, "")).places == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("INTAKE_ORDER", "always"),
        ("INTAKE_CONCURRENCY", "0"),
        ("INTAKE_CONCURRENCY", "many"),
        ("HTTP_CONCURRENCY", "-1"),
        ("HTTP_TASK_HUB_LAG_SECONDS", "soon"),
        ("INTAKE_RETRIES", "-2"),
        ("INTAKE_RETRIES", "0"),
        ("KEY_POINTERS_KAKFA", "/a"),
        ("INTAKE_PAUSE_SECONDS", "nan"),
        ("INTAKE_TASK_HUB_LAG_SECONDS", "inf"),
        ("COSMOS_OPERATION", "operation"),
        ("KEY_POINTERS", "order"),
        ("KEY_POINTERS_KAFKA", "/a, b"),
        ("SCHEDULED_OPERATIONS", "nowhere.toml"),
    ],
)
def test_a_value_that_cannot_be_used_is_reported(name: str, value: str) -> None:
    assert list(mistakes(**{name: value})) == [name]


def test_keys_are_made_of_fields_by_source() -> None:
    settings = read(KEY_POINTERS="/a, /b", KEY_POINTERS_KAFKA="/c", KEY_POINTERS_EVENT_GRID="")
    found = {source: settings.pointers_for(source) for source in ("queue", "kafka", "event_grid", "timer")}
    assert found == {"queue": ("/a", "/b"), "kafka": ("/c",), "event_grid": (), "timer": ()}


def test_schedules_stand_in_the_setting_or_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "schedules.toml"
    file.write_text(SCHEDULE)
    for value in (SCHEDULE, str(file)):
        assert [each.name for each in read(SCHEDULED_OPERATIONS=value).scheduled_operations] == ["a"]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (False, False)),
        ({"INTAKE_ORDER": "none"}, (False, False)),
        ({"INTAKE_ORDER": "partition"}, (True, False)),
        ({"INTAKE_ORDER": "order_key"}, (True, True)),
    ],
)
def test_order_is_kept_where_it_is_asked_for(environ: dict[str, Any], expected: tuple[bool, bool]) -> None:
    settings = read(**environ)
    assert (settings.keeps_order, settings.gives_order_keys) == expected
