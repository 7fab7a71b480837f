"""Health metrics: their values beside thresholds, and their gauges."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from durable_retry.features.dead_letter_lists.rules.numbers import DeadLetterSummary, open_dead_letters
from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.calls import CallHealth
from durable_retry.rules.circuit.snapshot import Permitted
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import using
from durable_retry_console.alerts import gauges
from durable_retry_console.alerts.health import BlockedLanes, Circuits, HealthMetrics, all_thresholds, show
from durable_retry_console.alerts.rules import Alert, alert_changes
from durable_retry_console.alerts.settings import AlertSettings
from tests.support.builders import NOON, after
from tests.support.circuit import tripped
from tests.support.telemetry import Recorded, telemetry_stage

CONFIG = """
[dependencies.payments]
base_url = "https://payments.example.com"
limits = { max_concurrency = 8, rate_per_second = 3 }
[dependencies.idle]
base_url = "https://idle.example.com"
"""
DEPENDENCY = "durable_retry.dependency"
METRICS = HealthMetrics(
    dead_letters=DeadLetterSummary(
        **dict(open_dead_letters(7, after(-90), NOON)),
        by_reason={},
        by_dependency={
            name: open_dead_letters(count, NOON, NOON)
            for name, count in {"payments": 1, "queue:theirs": 2, "gone": 3, "(none)": 1}.items()
        },
    ),
    outbox_lag_seconds=4.0,
    circuits={"payments": Circuits(Breaker(state=CircuitState.OPEN, opened_at=after(-30)))},
    now=NOON,
    blocked_lanes=BlockedLanes(lanes=2, waiting=9, since=after(-600)),
)


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with using(parse_config(CONFIG, {})), telemetry_stage() as recorded:
        show(METRICS)
        yield recorded


def test_dead_letters_are_counted_by_configured_dependency(recorded: Recorded) -> None:
    counts = {labels.get(DEPENDENCY, ""): count for labels, count in recorded.points(gauges.DEAD_LETTERS)}
    assert counts == {"payments": 1, "idle": 0, "queue": 2, "": 4}
    assert recorded.points(gauges.DEAD_LETTER_AGE) == [({}, 90.0)]


def test_one_state_of_each_circuit_is_1(recorded: Recorded) -> None:
    points = recorded.points(gauges.CIRCUIT_STATUS)
    assert {labels["durable_retry.circuit.state"]: value for labels, value in points} == {
        state.value: int(state is CircuitState.OPEN) for state in CircuitState
    }


def test_the_limits_of_the_moment_are_shown_where_there_are_any(recorded: Recorded) -> None:
    assert recorded.points(gauges.LIMIT_CONCURRENCY) == [({DEPENDENCY: "payments"}, 8)]
    assert recorded.points(gauges.LIMIT_RATE) == [({DEPENDENCY: "payments"}, 3.0)]


def test_the_outbox_lag_is_in_seconds(recorded: Recorded) -> None:
    assert recorded.points(gauges.OUTBOX_LAG) == [({}, 4.0)]


def test_blocked_lanes_and_who_waits_in_them_are_counted(recorded: Recorded) -> None:
    assert recorded.points(gauges.LANES_BLOCKED) == [({}, 2)]
    assert recorded.points(gauges.LANES_WAITING) == [({}, 9)]


def test_one_outage_is_one_incident_however_often_a_probe_fails() -> None:
    """Eight probes fail after breaks of 30 s, 60 s and so on; `watch` looks each minute."""
    desk, probe_at = tripped(), 30.0
    known: dict[str, Alert] = {}
    changes = []
    for minute in range(1, 40):
        while probe_at <= 60 * minute < 1_800:
            assert isinstance(desk.ask(probe_at), Permitted)
            desk.conclude(probe_at, CallHealth.FAILURE)
            assert desk.breaker.retry_at is not None
            probe_at = (desk.breaker.retry_at - NOON).total_seconds()
        if minute == 35:
            desk.control(60 * minute, ManualControl.CLOSE)
        now = after(60 * minute)
        circuits = {"payments": Circuits(desk.breaker)}
        health = replace(METRICS, circuits=circuits, now=now, blocked_lanes=None)
        for alert in alert_changes(known, health.with_thresholds(AlertSettings().thresholds), now):
            known[alert.condition] = alert
            changes.append((minute, alert.state))
    assert changes == [(6, "raised"), (35, "cleared")]


UNKNOWN = HealthMetrics(
    dead_letters=None,
    outbox_lag_seconds=None,
    circuits={"payments": None},
    now=NOON,
    retries_exhausted=None,
    not_starting_seconds=None,
    blocked_lanes=None,
    stuck=None,
    held=None,
)


def test_what_is_not_known_has_no_gauge_but_the_configured_limits() -> None:
    with using(parse_config(CONFIG, {})), telemetry_stage() as recorded:
        show(UNKNOWN)
        for gauge in (
            gauges.DEAD_LETTERS,
            gauges.DEAD_LETTER_AGE,
            gauges.OUTBOX_LAG,
            gauges.CIRCUIT_STATUS,
            gauges.LANES_BLOCKED,
            gauges.LANES_WAITING,
        ):
            assert recorded.points(gauge) == []
        assert recorded.points(gauges.LIMIT_CONCURRENCY) == [({DEPENDENCY: "payments"}, 8)]


def test_what_is_not_known_has_no_value() -> None:
    values = {one.condition: one.value for one in UNKNOWN.with_thresholds(AlertSettings().thresholds)}
    assert values.pop("task_hub_away_seconds") == 0.0
    assert set(values.values()) == {None}
    assert "circuit_open_seconds:payments" in values


def test_thresholds_are_compared_with_the_same_metrics() -> None:
    values = {one.condition: one.value for one in METRICS.with_thresholds(AlertSettings().thresholds)}
    assert values == {
        "dead_letters": 7.0,
        "dead_letter_age_seconds": 90.0,
        "outbox_lag_seconds": 4.0,
        "retries_exhausted_per_hour": 0.0,
        "not_starting": 0.0,
        "stuck_seconds": 0.0,
        "lane_blocked_seconds": 600.0,
        "task_hub_away_seconds": 0.0,
        "held": 0.0,
        "circuit_open_seconds:payments": 30.0,
        "credential_refused_seconds:payments": 0.0,
    }


def test_operations_that_are_held_are_counted_by_the_first_of_them() -> None:
    health = replace(METRICS, held={"op-1": after(-90), "op-2": after(-5)})
    thresholds = {"held": 60.0} | dict.fromkeys(AlertSettings().thresholds, 0.0)
    metrics = health.with_thresholds(thresholds | {"held": 60.0})
    (alert,) = alert_changes({}, metrics, NOON)
    assert alert.text == (
        "Operations held by their policies (2): 1 min, over the threshold of 1 min. "
        "Resume them once their dependency works; else they become dead letters."
    )


OWN = (
    CONFIG
    + """
[dependencies.payments.alerts]
circuit_open_seconds = 10
dead_letters = 0.5
dead_letter_age_seconds = 60
[dependencies.idle.alerts]
dead_letters = 0.5

[dependencies.aging]
base_url = "http://aging.test"

[dependencies.aging.alerts]
dead_letter_age_seconds = 60
"""
)


def test_a_dependency_has_thresholds_of_its_own() -> None:
    with using(parse_config(OWN, {})):
        thresholds = all_thresholds()
    values = METRICS.with_thresholds(thresholds)
    unknown = replace(METRICS, dead_letters=None).with_thresholds(thresholds)
    found = {each.condition: (each.value, each.threshold, each.is_exceeded) for each in values}
    assert {name: each for name, each in found.items() if ":" in name} == {
        "circuit_open_seconds:payments": (30.0, 10.0, True),
        "credential_refused_seconds:payments": (0.0, 60.0, False),
        "dead_letters:payments": (1, 0.5, True),
        "dead_letter_age_seconds:payments": (0.0, 60.0, False),
        "dead_letters:idle": (0, 0.5, False),
        "dead_letter_age_seconds:aging": (0.0, 60.0, False),
    }
    letters = [each for each in unknown if each.condition.startswith("dead_letter")]
    assert len(letters) == 6
    assert {each.value for each in letters} == {None}


def test_the_circuit_of_a_limit_key_counts_for_the_alert_of_its_dependency() -> None:
    with using(parse_config(CONFIG, {})):
        opened = Breaker(state=CircuitState.OPEN, opened_at=after(-90), limit_key="customer-17")
        health = replace(METRICS, circuits={"payments": Circuits(Breaker(), [opened])})
        metrics = {each.condition: each for each in health.with_thresholds(all_thresholds())}
    metric = metrics["circuit_open_seconds:payments"]
    assert (metric.value, metric.names) == (90.0, ("customer-17",))
    assert {each.names for condition, each in metrics.items() if condition != metric.condition} == {None}


def test_an_alert_names_no_limit_key_once_the_dependencys_own_circuit_is_open() -> None:
    of_key = Breaker(state=CircuitState.OPEN, opened_at=after(-90), limit_key="customer-17")
    both = Circuits(Breaker(state=CircuitState.FORCED_OPEN, opened_at=after(-10)), [of_key])
    assert (both.open_keys, both.open_seconds(NOON)) == (None, 90.0)


def test_a_refused_credential_has_its_own_alert_with_the_limit_keys_whose_credential_it_is() -> None:
    of_key = Breaker(
        state=CircuitState.OPEN, opened_at=after(-90), limit_key="customer-17", unauthorized_by="401"
    )
    down = Breaker(state=CircuitState.OPEN, opened_at=after(-95), limit_key="customer-18")
    own = Breaker(state=CircuitState.HALF_OPEN, opened_at=after(-70), unauthorized_by="407")
    health = replace(
        METRICS, circuits={"payments": Circuits(own), "idle": Circuits(Breaker(), [down, of_key])}
    )
    with using(parse_config(CONFIG, {})):
        metrics = {each.condition: each for each in health.with_thresholds(all_thresholds())}
    whole, keyed = (metrics[f"credential_refused_seconds:{name}"] for name in ("payments", "idle"))
    assert (whole.value, whole.names, whole.is_exceeded) == (70.0, None, True)
    assert (keyed.value, keyed.names, keyed.is_exceeded) == (90.0, ("customer-17",), True)
    (alert,) = alert_changes({}, [keyed], NOON)
    assert alert.text == (
        "Credential refused, idle (customer-17): 1 min, over the threshold of 1 min. Set a new one: its "
        "operations wait, lose no attempt, and go on once it works."
    )


def test_what_stands_still_is_named_and_counts_from_the_first_that_was_due() -> None:
    stuck = {f"op-{age}": after(-age) for age in (400, 300)}
    health = replace(METRICS, stuck=stuck)
    metrics = {each.condition: each for each in health.with_thresholds(AlertSettings().thresholds)}
    metric = metrics["stuck_seconds"]
    assert (metric.value, metric.names, metric.is_exceeded) == (400.0, ("op-400", "op-300"), True)
