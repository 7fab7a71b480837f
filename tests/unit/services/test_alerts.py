"""The gauges of what `watch` reads."""

from collections.abc import Iterator

import pytest

from durable_retry.engine.adaptive import Adaptive
from durable_retry.engine.alerts import Thresholds
from durable_retry.engine.circuit import Breaker, CircuitState
from durable_retry.engine.config import parse_config
from durable_retry.engine.pace import Quota
from durable_retry.services.alerts import HealthMetrics, show
from durable_retry.settings.configuration import using
from durable_retry.stores.dead_letters.index import OpenCount, Summary
from durable_retry.telemetry import metrics
from tests.support.builders import NOON, after
from tests.support.telemetry import Recorded, telemetry_stage

CONFIG = """
[dependencies.payments]
base_url = "https://payments.example.com"
limits = { max_concurrency = 8, rate_per_second = 3, adaptive = true }
[dependencies.idle]
base_url = "https://idle.example.com"
"""
DEPENDENCY = "durable_retry.dependency"
METRICS = HealthMetrics(
    dead_letters=Summary(
        total=OpenCount(count=7, oldest_at=after(-90)),
        by_reason={},
        by_dependency={
            name: OpenCount(count=count, oldest_at=NOON)
            for name, count in {"payments": 1, "queue:theirs": 2, "gone": 3, "": 1}.items()
        },
    ),
    outbox_lag_seconds=4.0,
    circuits={
        "payments": Breaker(
            state=CircuitState.OPEN,
            opened_at=after(-30),
            quota=Quota(5, 20, NOON, after(10)),
            adaptive=Adaptive(4.5, NOON),
        )
    },
    now=NOON,
)


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with using(parse_config(CONFIG, {})), telemetry_stage() as recorded:
        show(METRICS)
        yield recorded


def test_dead_letters_are_counted_by_configured_dependency(recorded: Recorded) -> None:
    counts = {labels.get(DEPENDENCY, ""): count for labels, count in recorded.points(metrics.DEAD_LETTERS)}
    assert counts == {"payments": 1, "idle": 0, "queue": 2, "": 4}
    assert recorded.points(metrics.DEAD_LETTER_AGE) == [({}, 90.0)]


def test_one_state_of_each_circuit_is_1(recorded: Recorded) -> None:
    points = recorded.points(metrics.CIRCUIT_STATUS)
    assert {labels["durable_retry.circuit.state"]: value for labels, value in points} == {
        state.value: int(state is CircuitState.OPEN) for state in CircuitState
    }


def test_the_limits_of_the_moment_are_shown_where_there_are_any(recorded: Recorded) -> None:
    assert recorded.points(metrics.LIMIT_CONCURRENCY) == [({DEPENDENCY: "payments"}, 4)]
    assert recorded.points(metrics.LIMIT_RATE) == [({DEPENDENCY: "payments"}, 0.5)]


def test_the_outbox_lag_is_in_seconds(recorded: Recorded) -> None:
    assert recorded.points(metrics.OUTBOX_LAG) == [({}, 4.0)]


def test_thresholds_are_compared_with_the_same_metrics() -> None:
    values = {one.condition: one.value for one in METRICS.with_thresholds(Thresholds())}
    assert values == {
        "dead_letters": 7.0,
        "dead_letter_age_seconds": 90.0,
        "outbox_lag_seconds": 4.0,
        "retries_exhausted_per_hour": 0.0,
        "circuit_open_seconds:payments": 30.0,
    }
