from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from durable_retry.features.debounce.facts import DEBOUNCED
from durable_retry.features.outbox.rules.outbox import CONTENT_TYPE
from durable_retry.features.recording.metrics import FAILED_OPEN_CALLS
from durable_retry.features.recording.metrics import METRICS as RECORDED
from durable_retry_console.alerts.gauges import GAUGES
from scripts.processes import eventually
from tests.support.app import System, operation
from tests.support.onebox.process import AS_SHIPPED
from tests.support.otlp import OtlpReceiver, Received, otlp_receiver
from tests.support.target import Target

METRICS = (*RECORDED, DEBOUNCED, *GAUGES)
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER_ID = "b7ad6b7169203331"
ID = "durable_retry.operation.id"
CALLER = {"traceparent": f"00-{TRACE_ID}-{CALLER_ID}-01"}


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def exporting(
    tmp_path_factory: pytest.TempPathFactory, target: Target, collector: OtlpReceiver
) -> Iterator[System]:
    """An app that exports everything to the collector at once."""
    system = System(
        tmp_path_factory.mktemp("exporting"),
        target,
        DEPENDENCIES_FILE=str(Path(__file__).with_name("telemetry.toml")),
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_SERVICE_NAME="orders",
        FUNCTIONS_WORKER_PROCESS_COUNT=AS_SHIPPED,
        OTEL_METRIC_EXPORT_INTERVAL="200",
        OTEL_BSP_SCHEDULE_DELAY="100",
        OTEL_BLRP_SCHEDULE_DELAY="100",
    )
    with system.running():
        yield system


def carried_out(system: System, key: str, path: str, **more: Any) -> str:
    """Post an operation from within the caller's trace, and return its id once it has succeeded."""
    answer = system.client.post("/api/operations", json=operation(key, path, **more), headers=CALLER)
    assert answer.status_code == 202, answer.text
    operation_id: str = answer.json()["operation_id"]
    system.until(operation_id, "succeeded")
    return operation_id


def spans_of(collector: OtlpReceiver, operation_id: str, name: str) -> list[Received]:
    """Wait until there are spans of a name that belong to an operation."""

    def look() -> list[Received]:
        of_it = (span for span in collector.spans if span.attributes.get(ID) == operation_id)
        return [span for span in of_it if span.name == name]

    return eventually(lambda: look() or None, f"{name} of {operation_id}")


def test_one_trace_leads_from_the_caller_to_what_the_target_received(
    exporting: System, collector: OtlpReceiver, key: str
) -> None:
    operation_id = carried_out(exporting, key, "/fail/2")
    (whole,) = spans_of(collector, operation_id, "operation flaky")
    (submitted,) = spans_of(collector, operation_id, "submit flaky")
    attempts = spans_of(collector, operation_id, "attempt flaky")
    assert (submitted.trace_id, submitted.parent_id) == (TRACE_ID, CALLER_ID)
    assert {(span.trace_id, span.parent_id) for span in (*attempts, whole)} == {(TRACE_ID, submitted.span_id)}
    assert [span.attributes["durable_retry.attempt.number"] for span in attempts] == [1, 2, 3]
    assert [span.attributes["durable_retry.outcome"] for span in attempts] == [
        "failure",
        "failure",
        "success",
    ]
    shown = [{each.key: each.value.string_value for each in event.attributes} for event in whole.raw.events]
    assert [event.name for event in whole.raw.events] == ["wait"] * len(shown)
    # Whatever held an attempt up besides, on a busy machine, is shown by both.
    waits = [wait["kind"] for wait in exporting.status(operation_id)["waits"]]
    assert waits.count("retry") == 2
    assert sorted(wait["durable_retry.wait.kind"] for wait in shown) == sorted(waits)

    requests = {span.parent_id: span.span_id for span in collector.spans if span.name == "POST"}
    received = [one["headers"]["traceparent"] for one in exporting.target.received(key)["tries"]]
    assert received == [f"00-{TRACE_ID}-{requests[span.span_id]}-01" for span in attempts]


def test_follow_up_messages_go_on_with_the_trace(
    exporting: System, collector: OtlpReceiver, key: str
) -> None:
    event = {"type": "charged", "dependency": "flaky", "path": "/echo", "data": {"of": key}}
    operation_id = carried_out(exporting, key, "/echo", on_success=[event])
    event_id = exporting.status(operation_id)["events"][0]["event_id"]
    (delivery,) = spans_of(collector, event_id, "attempt flaky")
    (submitted,) = spans_of(collector, operation_id, "submit flaky")
    assert (delivery.trace_id, delivery.parent_id) == (TRACE_ID, submitted.span_id)
    (sent,) = exporting.target.received(event_id)["tries"]
    assert sent["headers"]["traceparent"].startswith(f"00-{TRACE_ID}-")


def test_a_message_goes_on_with_the_trace_of_the_event_that_it_holds(
    exporting: System, collector: OtlpReceiver, key: str
) -> None:
    event = {"specversion": "1.0", "id": key, "source": "/shop", "type": "order", **CALLER}
    answer = exporting.client.post(
        "/api/operations/enqueue",
        json={**event, "data": operation("", "/echo") | {"key": key}},
        headers={"Content-Type": CONTENT_TYPE},
    )
    (submitted,) = spans_of(collector, answer.json()["operation_id"], "submit flaky")
    assert (submitted.trace_id, submitted.parent_id) == (TRACE_ID, CALLER_ID)
    assert submitted.attributes["durable_retry.source"] == "queue"


def test_every_metric_arrives_under_its_name_with_its_labels_alone(
    exporting: System, collector: OtlpReceiver, key: str
) -> None:
    exporting.accepted(f"{key}-1", "/status/400")
    for number in range(3):
        exporting.accepted(f"{key}-{number}-thrifty", "/fail/1", dependency="thrifty")
    carried_out(exporting, f"{key}-fragile", "/fail/1", dependency="fragile")
    exporting.accepted(f"{key}-debounced", "/echo", debounce_key=key, debounce_seconds=1)
    exporting.client.post("/admin/functions/watch", json={"input": ""}).raise_for_status()
    wanted = {metric.name for metric in METRICS} - {FAILED_OPEN_CALLS.name}
    eventually(lambda: wanted <= {point.name for point in collector.points}, "all of them arrived")

    labels = {metric.name: set(metric.labels) for metric in METRICS}
    ours = [point for point in collector.points if point.name.startswith("durable_retry.")]
    assert [point for point in ours if not point.attributes.keys() <= labels[point.name]] == []
    values = {str(value) for point in ours for value in point.attributes.values()}
    assert [value for value in values if key in value or "op-" in value or "/" in value] == []
    assert collector.services == {"orders"}


def test_log_lines_carry_ids_and_the_trace(exporting: System, collector: OtlpReceiver, key: str) -> None:
    operation_id = carried_out(exporting, key, "/fail/1", correlation_id="order-42")

    def look() -> list[Received]:
        return [line for line in collector.lines if line.attributes.get(ID) == operation_id]

    lines = eventually(lambda: found if len(found := look()) == 3 else None, "three lines")
    attempt, wait, end = sorted(lines, key=lambda line: int(line.raw.time_unix_nano))
    assert attempt.name == f"operation {operation_id} (key {key}): attempt 1 of flaky: transient"
    assert wait.name.endswith("(retry)")
    assert end.attributes["durable_retry.operation.status"] == "succeeded"
    assert {line.attributes["durable_retry.operation.key"] for line in lines} == {key}
    assert {line.attributes["durable_retry.correlation_id"] for line in lines} == {"order-42"}
    assert {line.trace_id for line in lines} == {TRACE_ID}


def test_an_app_that_exports_nothing_passes_the_callers_trace_on(system: System, key: str) -> None:
    system.client.post("/api/operations", json=operation(key, "/echo"), headers=CALLER)
    (one,) = eventually(lambda: system.target.received(key)["tries"] or None, "it was called")
    assert one["headers"]["traceparent"] == CALLER["traceparent"]


def test_a_collector_that_goes_away_holds_up_no_work(
    exporting: System, collector: OtlpReceiver, key: str
) -> None:
    collector.stop()  # For good: this is the last test here, and `exporting` stops well, too.
    carried_out(exporting, key, "/echo")
