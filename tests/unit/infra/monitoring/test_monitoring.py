import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from durable_retry.features.debounce.facts import DEBOUNCED
from durable_retry.features.recording.metrics import METRICS as RECORDED
from durable_retry.telemetry.metrics import Metric, MetricKind
from durable_retry_console.alerts.gauges import GAUGES

METRICS: Final = (*RECORDED, DEBOUNCED, *GAUGES)
FOLDER: Final = Path(__file__).parents[4] / "infra" / "monitoring"
VALUES: Final = {
    "durable_retry.outcome": {"success", "failure", "not_sent", "started", "replayed", "key_reused"},
    "durable_retry.circuit.of": {"dependency", "limit_key"},
    "durable_retry.circuit.state": {"closed", "open", "half_open", "forced_open", "disabled"},
}
SELECTOR: Final = re.compile(r"(durable_retry_\w+)(?:\{([^}]*)\})?")
MATCHER: Final = re.compile(r'(\w+)\s*(?:=~|!=|=)\s*"([^"]*)"')


def texts(document: Any, names: frozenset[str]) -> Iterator[str]:
    """Yield every text under one of these names, wherever it stands."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name in names and isinstance(value, str):
                yield value
            else:
                yield from texts(value, names)
    elif isinstance(document, list):
        for each in document:
            yield from texts(each, names)


def prometheus(name: str) -> str:
    return name.replace(".", "_")


def names_in_prometheus(metric: Metric) -> set[str]:
    """The series that an OpenTelemetry collector, or Prometheus itself, makes of a metric."""
    name = prometheus(metric.name) + {"s": "_seconds", "1": "_ratio", "{attempt}/s": "_per_second"}.get(
        metric.unit, ""
    )
    match metric.kind:
        case MetricKind.COUNTER:
            return {f"{name}_total"}
        case MetricKind.HISTOGRAM:
            return {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
        case MetricKind.GAUGE:
            return {name}


SERIES: Final = {name: metric for metric in METRICS for name in names_in_prometheus(metric)}
LABELS: Final = {prometheus(label): label for metric in METRICS for label in metric.labels}


def grafana() -> list[str]:
    return list(texts(json.loads((FOLDER / "grafana.json").read_text()), frozenset({"expr", "query"})))


def workbook() -> list[str]:
    return list(texts(json.loads((FOLDER / "workbook.json").read_text()), frozenset({"query"})))


@pytest.mark.parametrize("query", [each for each in grafana() if "durable_retry" in each])
def test_grafana_asks_for_series_and_labels_that_there_are(query: str) -> None:
    asked = [(name, inside) for name, inside in SELECTOR.findall(query) if name not in LABELS]
    assert {name for name, _ in asked} <= SERIES.keys()
    assert asked
    for name, inside in asked:
        for label, value in MATCHER.findall(inside):
            assert LABELS[label] in SERIES[name].labels
            if "$" not in value:
                assert set(value.split("|")) <= VALUES[LABELS[label]]


@pytest.mark.parametrize("query", workbook())
def test_the_workbook_asks_for_metrics_and_labels_that_there_are(query: str) -> None:
    quoted = set(re.findall(r'"(durable_retry[\w.]*)"', query))
    labels = set(re.findall(r'customDimensions\["([^"]+)"\]', query))
    metrics = {metric for metric in METRICS if metric.name in quoted}
    assert quoted - labels == {metric.name for metric in metrics}
    allowed = {label for metric in METRICS for label in metric.labels}
    if metrics:
        allowed = {label for metric in metrics for label in metric.labels}
    assert labels <= allowed
    assert metrics or query.startswith("dependencies\n")  # spans, for percentiles
    for value in re.findall(r'(?:outcome|state) (?:==|!=) "(\w+)"', query):
        assert any(value in values for values in VALUES.values())


def test_both_show_every_metric() -> None:
    everything = {metric.name for metric in METRICS}
    shown = {
        SERIES[name].name for query in grafana() for name, _ in SELECTOR.findall(query) if name in SERIES
    }
    assert shown == everything
    text = "\n".join(workbook())
    assert {metric.name for metric in METRICS if f'"{metric.name}"' in text} == everything


def test_nothing_is_drawn_twice_or_over_another_panel() -> None:
    panels = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
