"""What Application Insights is sent, by its connection string alone; loopback stands in for its ingestion."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.processes import ROOT
from tests.support.stub_server import StubServer
from tests.support.telemetry import TRACE_ID

EXPORT = """
import logging, os, sys
sys.path.insert(0, ".")
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
from durable_retry.rules.facts import AttemptEnded, OperationEnded
from durable_retry.features.exporters.start import begin
begin()
from opentelemetry import _logs, metrics, trace
from durable_retry.features.recording import events
from durable_retry.telemetry import spans
from tests.support.builders import an_outcome
from tests.support.telemetry import CALLED, an_end
with spans.attempt(CALLED, 1) as span:
    spans.attempt_ended(span, an_outcome())
    events.attempted(AttemptEnded(CALLED, an_outcome(), was_held=False))
events.operation_ended(OperationEnded(an_end(), CALLED.trace))
for provider in (trace.get_tracer_provider(), metrics.get_meter_provider(), _logs.get_logger_provider()):
    provider.shutdown()
os._exit(0)  # The exporter's own threads go on otherwise.
"""


@pytest.fixture
def ingestion() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The ingestion's URL, and what it was sent."""
    items: list[dict[str, Any]] = []

    def take(_path: str, body: bytes) -> bytes:
        received = json.loads(body)
        items.extend(received)
        count = len(received)
        return json.dumps({"itemsReceived": count, "itemsAccepted": count, "errors": []}).encode()

    server = StubServer(take)
    yield server.url, items
    server.stop()


def test_spans_metrics_and_log_lines_arrive_with_what_the_queries_ask_for(
    ingestion: tuple[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    url, items = ingestion
    key = "InstrumentationKey=00000000-0000-0000-0000-000000000000"
    environ = {
        "APPLICATIONINSIGHTS_CONNECTION_STRING": f"{key};IngestionEndpoint={url}/",
        "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL": "true",
        "PYTHON_ENABLE_OPENTELEMETRY": "true",
        "WEBSITE_SITE_NAME": "func-retry",
        "TMPDIR": str(tmp_path),
    }
    subprocess.run([sys.executable, "-c", EXPORT], cwd=ROOT, env=environ, capture_output=True, check=True)

    assert {item["tags"]["ai.cloud.role"] for item in items} == {"func-retry"}
    calls, points, lines = (
        [item for item in items if item["data"]["baseType"] == kind]
        for kind in ("RemoteDependencyData", "MetricData", "MessageData")
    )
    attempt, whole = (item["data"]["baseData"] for item in calls)
    assert (attempt["name"], attempt["success"], whole["name"]) == (
        "attempt payments",
        False,
        "operation payments",
    )
    assert attempt["properties"]["durable_retry.category"] == "transient"
    assert {item["tags"]["ai.operation.id"] for item in (*calls, *lines)} == {TRACE_ID}
    names = [metric["name"] for item in points for metric in item["data"]["baseData"]["metrics"]]
    assert {"durable_retry.attempt.duration", "durable_retry.operation.duration"} <= set(names)
    messages = [item["data"]["baseData"]["message"] for item in lines]
    assert "operation op-sample (key evt-1): succeeded after 2 attempts in 10.2 s" in messages
