import re
from typing import Any

import pytest

from durable_retry.features.debounce.facts import DEBOUNCED
from durable_retry.features.recording.metrics import METRICS as RECORDED
from durable_retry.runtime import clock
from durable_retry.telemetry import metrics
from durable_retry.telemetry.metrics import Metric, MetricKind
from durable_retry_console.alerts import gauges
from scripts.processes import ROOT
from tests.support.narrowing import existing
from tests.support.telemetry import Recorded

METRICS = (*RECORDED, DEBOUNCED, *gauges.GAUGES)
DOCUMENT = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| `(durable_retry\.[a-z_.]+)` \| (\w+) \| `([^`]+)` \| ([^|]*) \| ([^|]+) \|$", re.MULTILINE
)


def row_of(metric: Metric) -> tuple[str, ...]:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return (metric.name, metric.kind.value, metric.unit, labels, metric.description)


def test_the_document_has_the_table_of_the_code() -> None:
    assert [tuple(part.strip() for part in row) for row in ROW.findall(DOCUMENT)] == list(
        map(row_of, METRICS)
    )


def test_the_document_has_the_buckets_of_the_code() -> None:
    for metric in METRICS:
        bounds = ", ".join(f"{bound:g}" for bound in metric.buckets)
        assert not bounds or f"`{metric.name}`: {bounds}" in DOCUMENT


def metrics_of(recorded: Recorded) -> dict[str, Any]:
    data = existing(recorded.reader.get_metrics_data())
    return {
        metric.name: metric
        for group in data.resource_metrics
        for scope in group.scope_metrics
        for metric in scope.metrics
    }


def test_receivers_see_names_units_and_buckets_of_the_table(recorded: Recorded) -> None:
    for metric in METRICS:
        labels = dict.fromkeys(metric.labels, "x")
        if metric.kind is MetricKind.GAUGE:
            gauges.show_gauges({metric: [(1, labels)]})
        else:
            metrics.record(metric, 1, labels)
    seen = metrics_of(recorded)
    assert {name: (one.unit, one.description) for name, one in seen.items()} == {
        metric.name: (metric.unit, metric.description) for metric in METRICS
    }
    for metric in METRICS:
        (point,) = seen[metric.name].data.data_points
        assert tuple(getattr(point, "explicit_bounds", ())) == metric.buckets


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_durations_are_in_seconds_and_have_buckets_that_grow(metric: Metric) -> None:
    assert (metric.kind is MetricKind.HISTOGRAM) == bool(metric.buckets)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    if metric.name.endswith((".duration", ".age", ".lag")):
        assert metric.unit == "s"


def test_a_reading_is_shown_until_the_next_one_is_overdue(recorded: Recorded) -> None:
    for seconds in (5.0, 7.0):
        gauges.show_gauges({gauges.OUTBOX_LAG: [(seconds, {})]})
    assert recorded.points(gauges.OUTBOX_LAG) == [({}, 7.0)]
    later_seconds = clock.monotonic_seconds() + gauges.SHOWN_SECONDS
    with clock.reading(clock.now, lambda: later_seconds):
        assert recorded.points(gauges.OUTBOX_LAG) == []
    assert gauges.latest("never read") == ()
