import json
from pathlib import Path
from typing import Any

import pytest

from durable_retry.features.sources import settings as settings_module
from durable_retry.features.sources.settings import SourceSettings, check_lock
from durable_retry.settings.group import SettingsError
from durable_retry.settings.intake import IntakeSettings

CONNECTED = {
    "SERVICE_BUS_QUEUE": "orders",
    "SERVICE_BUS_TOPIC": "shop",
    "SERVICE_BUS_SUBSCRIPTION": "retries",
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
        "service_bus_topic": "shop/retries",
        "event_hubs": "clicks",
        "cosmos_db": "shop/orders",
        "kafka": "orders",
    }


@pytest.mark.parametrize("name", sorted(CONNECTED.keys() - {"SERVICE_BUS_QUEUE"}))
def test_half_of_a_source_names_the_other_half(name: str) -> None:
    rest = {each: value for each, value in CONNECTED.items() if each != name}
    assert set(mistakes(**rest)) == {name.partition("__")[0]}


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"SERVICE_BUS_CONNECTION"}, ["SERVICE_BUS_QUEUE"]),
        ({"SERVICE_BUS_CONNECTION", "SERVICE_BUS_TOPIC"}, ["SERVICE_BUS_SUBSCRIPTION"]),
        ({"SERVICE_BUS_QUEUE"}, ["SERVICE_BUS_CONNECTION"]),
    ],
)
def test_a_queue_and_a_topic_share_a_connection(given: set[str], missing: list[str]) -> None:
    assert mistakes(**{name: CONNECTED[name] for name in given}) == missing


@pytest.mark.parametrize("name", ["SERVICE_BUS_QUEUE", "SERVICE_BUS_TOPIC"])
def test_either_needs_nothing_of_the_other(name: str) -> None:
    names = {"SERVICE_BUS_QUEUE"} if name == "SERVICE_BUS_QUEUE" else {name, "SERVICE_BUS_SUBSCRIPTION"}
    settings = read(**{each: CONNECTED[each] for each in names | {"SERVICE_BUS_CONNECTION"}})
    assert len(settings.places) == 1


def host_json(folder: Path, renewal: str) -> Path:
    path = folder / "host.json"
    extensions = {"serviceBus": {"maxAutoLockRenewalDuration": renewal}} if renewal else {}
    path.write_text(json.dumps({"version": "2.0", "extensions": extensions}))
    return path


@pytest.mark.parametrize(("renewal", "pause"), [("", 290), ("00:00:30", 20), ("01:00:00", 3590)])
def test_a_pause_that_ends_before_the_lock_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renewal: str, pause: int
) -> None:
    monkeypatch.setattr(
        settings_module, "intake_settings", lambda: IntakeSettings(intake_pause_seconds=pause)
    )
    check_lock(host_json(tmp_path, renewal))


def test_a_pause_that_outlasts_the_lock_of_a_message_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_module, "intake_settings", lambda: IntakeSettings(intake_pause_seconds=20.5))
    with pytest.raises(SettingsError, match=r"INTAKE_PAUSE_SECONDS: 20\.5 s are too long: host.json keeps"):
        check_lock(host_json(tmp_path, "00:00:30"))


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
