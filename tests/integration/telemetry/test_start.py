"""What is imported and set up, each time in a process of its own: providers are the whole process's."""

import sys
from pathlib import Path

import pytest

from tests.support.commands import ran

INSIGHTS = "InstrumentationKey=00000000-0000-0000-0000-000000000000;IngestionEndpoint=http://127.0.0.1:9/"
COLLECTOR = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}

LOAD = """
import sys
sys.path.insert(0, ".")
import function_app
loaded = set(sys.modules)
for name in ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.instrumentation", "azure.monitor"):
    print(name, any(module == name or module.startswith(name + ".") for module in loaded))
from opentelemetry import metrics, trace
print(type(trace.get_tracer_provider()).__module__, type(metrics.get_meter_provider()).__module__)
if trace.get_tracer_provider().__class__.__name__ == "TracerProvider":
    print(trace.get_tracer_provider().resource.attributes["service.name"])
import logging
print([type(handler).__name__ for handler in logging.getLogger().handlers])
sys.stdout.flush()
import os
os._exit(0)  # There is nobody to flush to.
"""


def loaded(**settings: str) -> list[str]:
    """Load the app with these settings and nothing else in its environment, and return what it prints."""
    environ = {
        "FLAKY_TARGET_URL": "http://127.0.0.1:9",
        "AzureWebJobsStorage": "UseDevelopmentStorage=true",
        **settings,
    }
    command = [sys.executable, "-c", LOAD]
    return ran(command, env=environ, check=True).stdout.splitlines()


def test_an_app_that_exports_nothing_imports_nothing_of_the_sdk() -> None:
    assert loaded() == [
        "opentelemetry.sdk False",
        "opentelemetry.exporter False",
        "opentelemetry.instrumentation False",
        "azure.monitor False",
        "opentelemetry.trace opentelemetry.metrics._internal",
        "[]",
    ]


def test_a_collector_brings_the_sdk_and_its_own_exporter_only() -> None:
    assert loaded(**COLLECTOR, OTEL_SERVICE_NAME="orders") == [
        "opentelemetry.sdk True",
        "opentelemetry.exporter True",
        "opentelemetry.instrumentation True",
        "azure.monitor False",
        "opentelemetry.sdk.trace opentelemetry.sdk.metrics._internal",
        "orders",
        "['LoggingHandler']",
    ]


@pytest.mark.long
def test_application_insights_needs_only_its_connection_string(tmp_path: Path) -> None:
    lines = loaded(
        APPLICATIONINSIGHTS_CONNECTION_STRING=INSIGHTS,
        WEBSITE_SITE_NAME="func-retry",
        TMPDIR=str(tmp_path),
        APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL="true",
    )
    assert lines[3:] == [
        "azure.monitor True",
        "opentelemetry.sdk.trace opentelemetry.sdk.metrics._internal",
        "func-retry",
        "[]",
    ]


@pytest.mark.long
def test_a_connection_string_that_cannot_be_used_stops_no_app(tmp_path: Path) -> None:
    lines = loaded(APPLICATIONINSIGHTS_CONNECTION_STRING="nonsense", TMPDIR=str(tmp_path))
    assert lines[4:] == ["opentelemetry.trace opentelemetry.metrics._internal", "[]"]
