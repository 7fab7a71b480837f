import logging

import pytest

from durable_retry.features.exporters import PLUGIN, start
from durable_retry.features.exporters.receivers import Receivers, Signal
from durable_retry.features.exporters.settings import receivers_in
from tests.support.narrowing import existing

ALL = frozenset(Signal)
TRACES_AND_METRICS = frozenset({Signal.TRACES, Signal.METRICS})
COLLECTOR = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
INSIGHTS = {"APPLICATIONINSIGHTS_CONNECTION_STRING": "InstrumentationKey=k"}


@pytest.mark.parametrize(
    ("settings", "otlp", "azure_monitor"),
    [
        ({}, frozenset(), frozenset()),
        ({"OTEL_SERVICE_NAME": "orders"}, frozenset(), frozenset()),
        (COLLECTOR, ALL, frozenset()),
        (COLLECTOR | {"OTEL_LOGS_EXPORTER": "none"}, TRACES_AND_METRICS, frozenset()),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/v1/traces"}, {Signal.TRACES}, frozenset()),
        (INSIGHTS, frozenset(), TRACES_AND_METRICS),
        (INSIGHTS | {"OTEL_METRICS_EXPORTER": "none"}, frozenset(), {Signal.TRACES}),
        (INSIGHTS | {"PYTHON_ENABLE_OPENTELEMETRY": "true"}, frozenset(), ALL),
        (INSIGHTS | {"PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY": "true"}, frozenset(), frozenset()),
        (COLLECTOR | INSIGHTS, ALL, TRACES_AND_METRICS),
        (COLLECTOR | INSIGHTS | {"OTEL_SDK_DISABLED": "TRUE"}, frozenset(), frozenset()),
    ],
)
def test_settings_name_who_receives_what(
    settings: dict[str, str], otlp: frozenset[Signal], azure_monitor: frozenset[Signal]
) -> None:
    receivers = receivers_in(settings)
    assert (receivers.otlp, receivers.azure_monitor) == (otlp, azure_monitor)


def test_the_function_apps_name_is_the_services_where_nothing_else_is_said() -> None:
    assert receivers_in(COLLECTOR).service == Receivers().service == "durable-retry"
    assert receivers_in(COLLECTOR | {"WEBSITE_SITE_NAME": "func-retry"}).service == "func-retry"


def test_the_connection_string_is_not_shown() -> None:
    assert "InstrumentationKey" not in repr(receivers_in(INSIGHTS))


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"])
def test_without_a_usable_url_nothing_is_sent_and_the_log_says_why(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert receivers_in(COLLECTOR | INSIGHTS | {name: "localhost:4318"}) == Receivers()
    assert f"telemetry is not started: {name} is no http(s) URL" in caplog.text
    assert receivers_in(COLLECTOR | {name: "localhost:4318", "OTEL_SDK_DISABLED": "true"}) == Receivers()


def test_a_protocol_that_is_not_spoken_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        receivers_in(COLLECTOR | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert "only http/protobuf" in caplog.text


def test_the_feature_begins_to_send_where_the_settings_name_who_receives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Receivers] = []
    monkeypatch.setattr(start, "imported", lambda _reference: started.append)
    begin = existing(PLUGIN.begin)
    begin()
    assert started == []
    for name, value in COLLECTOR.items():
        monkeypatch.setenv(name, value)
    begin()
    assert [each.otlp for each in started] == [ALL]
