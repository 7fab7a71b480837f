"""Health metrics: their values beside thresholds, and their gauges."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from durable_retry.circuit.entity import CircuitEntity
from durable_retry.features.dead_letter_lists.rules.numbers import DeadLetterSummary, open_dead_letters
from durable_retry.features.standstill.store import StuckInstance
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.calls import CallHealth
from durable_retry.rules.circuit.snapshot import Permitted
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.config.dependency import Bounds
from durable_retry.settings.configuration import dependencies, using
from durable_retry_console.alerts import gauges, health
from durable_retry_console.alerts.health import (
    Look,
    all_thresholds,
    find_circuits,
    find_letters,
    look_at_health,
    show_limits,
)
from durable_retry_console.alerts.rules import Alert, HealthMetric, alert_changes
from durable_retry_console.alerts.settings import AlertSettings
from tests.support.builders import NOON, after
from tests.support.circuit import tripped
from tests.support.narrowing import existing
from tests.support.telemetry import Recorded, telemetry_stage

CONFIG = """
[dependencies.payments]
base_url = "https://payments.example.com"
limits = { max_concurrency = 8, rate_per_second = 3 }
[dependencies.idle]
base_url = "https://idle.example.com"
"""
DEPENDENCY = "durable_retry.dependency"
LETTERS = DeadLetterSummary(
    **dict(open_dead_letters(7, after(-90), NOON)),
    by_reason={},
    by_dependency={
        name: open_dead_letters(count, NOON, NOON)
        for name, count in {"payments": 1, "queue:theirs": 2, "gone": 3, "(none)": 1}.items()
    },
)
OPENED = Breaker(state=CircuitState.OPEN, opened_at=after(-30))


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with using(parse_config(CONFIG, {})), telemetry_stage() as recorded:
        look = Look(TaskHub("{}"), NOON, all_thresholds())
        find_letters(look, LETTERS)
        find_circuits(look, "payments", OPENED)
        for name, dependency in dependencies().dependencies.items():
            show_limits(look, name, dependency.bounds or Bounds())
        gauges.show_gauges(look.gauge_values)
        yield recorded


class App:
    """What the parts of a look are asked: all of it fails, but what is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
        self._answers = answers
        for name in ("read_summary", "count_dead_letters", "seconds_without_a_start"):
            monkeypatch.setattr(health, name, self._asked(name))
        monkeypatch.setattr(CircuitEntity, "readable", self._asked("readable"))
        monkeypatch.setattr(TaskHub, "check", self._asked("check"))
        monkeypatch.setattr(health, "of_feature", self._of_feature)
        monkeypatch.setattr(health, "lacking_since", lambda *_: self._answers["lacking"])
        monkeypatch.setattr(health, "_away_since", {})

    def _asked(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def answer(*_: Any, **__: Any) -> Any:
            return self._answers[name]

        return answer

    def _of_feature(self, name: str, _place: str) -> Any:
        if name == "holding":
            return lambda *_: self._answers["holding"]
        return self._asked(name)

    async def look(self, now: datetime = NOON) -> dict[str, HealthMetric]:
        with using(parse_config(CONFIG, {})):
            return (await look_at_health(TaskHub("{}"), now)).metrics


WELL: dict[str, Any] = {
    "read_summary": LETTERS,
    "count_dead_letters": 0,
    "seconds_without_a_start": 0.0,
    "readable": (Breaker(), None),
    "check": None,
    "standstill": (),
    "holding": {},
    "lacking": {},
    "order": None,
    "outbox": None,
}


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
        look = Look(TaskHub("{}"), now, AlertSettings().thresholds)
        find_circuits(look, "payments", desk.breaker)
        for alert in alert_changes(known, look.metrics.values(), now):
            known[alert.condition] = alert
            changes.append((minute, alert.state))
    assert changes == [(6, "raised"), (35, "cleared")]


async def test_what_is_not_known_has_no_gauge_but_the_configured_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with telemetry_stage() as recorded:
        await App(monkeypatch).look()
        for gauge in gauges.GAUGES:
            is_limit = gauge in {gauges.LIMIT_CONCURRENCY, gauges.LIMIT_RATE}
            assert bool(recorded.points(gauge)) is is_limit


async def test_what_is_not_known_has_no_value(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = await App(monkeypatch).look()
    assert {each.value for each in metrics.values()} == {None}
    kinds = {name.partition(":")[0] for name in metrics}
    assert kinds == AlertSettings().thresholds.keys()
    assert "not known in this run: stuck_seconds (KeyError)" in caplog.text
    assert "not known in this run: dead_letters, dead_letter_age_seconds (KeyError)" in caplog.text


async def test_a_part_that_fails_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {name: answer for name, answer in WELL.items() if name != "check"}
    metrics = await App(monkeypatch, **answers).look()
    assert [name for name, metric in metrics.items() if metric.value is None] == ["task_hub_away_seconds"]


async def test_a_circuit_that_cannot_be_read_is_not_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = await App(monkeypatch, **WELL | {"readable": (Breaker(), "it is no JSON")}).look()
    unknown = {name for name, metric in metrics.items() if metric.value is None}
    assert unknown == {name for name in metrics if name.startswith(("circuit_", "credential_", "paused_"))}
    assert "the circuit of payments cannot be read: it is no JSON" in caplog.text
    assert {getattr(record, DEPENDENCY, None) for record in caplog.records} == {"payments", "idle", None}


async def test_what_the_app_does_not_have_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(monkeypatch, **WELL)
    monkeypatch.setattr(health, "of_feature", lambda *_: None)
    monkeypatch.setattr(health, "all_thresholds", lambda: dict.fromkeys(AlertSettings().thresholds, 0.0))
    del app._answers["count_dead_letters"]  # with a threshold of 0 nothing is counted
    with using(parse_config(CONFIG + "circuit = { enabled = false }\n", {})):
        metrics = (await look_at_health(TaskHub("{}"), NOON)).metrics
    assert {name: metric.value for name, metric in metrics.items()} == {
        "dead_letters": 7.0,
        "dead_letter_age_seconds": 90.0,
        "retries_exhausted_per_hour": 0.0,
        "not_starting": 0.0,
        "task_hub_away_seconds": 0.0,
        "stuck_seconds": 0.0,
        "held": 0.0,
        "lacking_seconds": 0.0,
        "circuit_open_seconds:payments": 0.0,
        "credential_refused_seconds:payments": 0.0,
        "paused_seconds:payments": 0.0,
    }


async def test_a_task_hub_is_away_once_it_has_not_answered_for_longer_than_the_threshold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App(monkeypatch)
    await app.look()
    assert (await app.look(after(60)))["task_hub_away_seconds"].value == 60
    app._answers["check"] = None
    assert (await app.look(after(120)))["task_hub_away_seconds"].value == 0


async def test_a_task_hub_that_hangs_is_away_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert health._HUB_SECONDS < health._PART_SECONDS
    app = App(monkeypatch, **WELL)
    monkeypatch.setattr(TaskHub, "check", lambda _: asyncio.Event().wait())
    monkeypatch.setattr(health, "_HUB_SECONDS", 0.01)
    await app.look()
    assert (await app.look(after(60)))["task_hub_away_seconds"].value == 60


async def test_thresholds_are_compared_with_the_same_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = await App(monkeypatch, **WELL | {"readable": (OPENED, None)}).look()
    assert {name: metric.value for name, metric in metrics.items()} == {
        "dead_letters": 7.0,
        "dead_letter_age_seconds": 90.0,
        "retries_exhausted_per_hour": 0.0,
        "not_starting": 0.0,
        "stuck_seconds": 0.0,
        "task_hub_away_seconds": 0.0,
        "held": 0.0,
        "lacking_seconds": 0.0,
        "circuit_open_seconds:payments": 30.0,
        "credential_refused_seconds:payments": 0.0,
        "paused_seconds:payments": 0.0,
        "circuit_open_seconds:idle": 30.0,
        "credential_refused_seconds:idle": 0.0,
        "paused_seconds:idle": 0.0,
    }


async def test_operations_that_are_held_are_counted_by_the_first_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics = await App(monkeypatch, **WELL | {"holding": {"op-1": after(-90), "op-2": after(-5)}}).look()
    (alert,) = alert_changes({}, [metrics["held"]], NOON)
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
        look = Look(TaskHub("{}"), NOON, all_thresholds())
        find_letters(look, LETTERS)
    find_circuits(look, "payments", OPENED)
    found = {name: (each.value, each.threshold, each.is_exceeded) for name, each in look.metrics.items()}
    assert {name: each for name, each in found.items() if ":" in name} == {
        "circuit_open_seconds:payments": (30.0, 10.0, True),
        "credential_refused_seconds:payments": (0.0, 60.0, False),
        "paused_seconds:payments": (0.0, 300.0, False),
        "dead_letters:payments": (1, 0.5, True),
        "dead_letter_age_seconds:payments": (0.0, 60.0, False),
        "dead_letters:idle": (0, 0.5, False),
        "dead_letter_age_seconds:aging": (0.0, 60.0, False),
    }


async def test_dead_letters_of_dependencies_with_own_thresholds_are_unknown_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    App(monkeypatch)
    with using(parse_config(OWN, {})):
        metrics = (await look_at_health(TaskHub("{}"), NOON)).metrics
    letters = {name: each.value for name, each in metrics.items() if name.startswith("dead_letter")}
    assert letters == dict.fromkeys(
        (
            *("dead_letters", "dead_letters:payments", "dead_letters:idle"),
            *("dead_letter_age_seconds", "dead_letter_age_seconds:payments", "dead_letter_age_seconds:aging"),
        )
    )


def circuits_found(**circuits: list[Breaker]) -> dict[str, HealthMetric]:
    look = Look(TaskHub("{}"), NOON, AlertSettings().thresholds)
    for name, each in circuits.items():
        find_circuits(look, name, *each)
    return look.metrics


def test_the_circuit_of_a_limit_key_counts_for_the_alert_of_its_dependency() -> None:
    opened = Breaker(state=CircuitState.OPEN, opened_at=after(-90), limit_key="customer-17")
    metrics = circuits_found(payments=[Breaker(), opened])
    metric = metrics["circuit_open_seconds:payments"]
    assert (metric.value, metric.names) == (90.0, ("customer-17",))
    assert {each.names for condition, each in metrics.items() if condition != metric.condition} == {None}


def test_an_alert_names_no_limit_key_once_the_dependencys_own_circuit_is_open() -> None:
    of_key = Breaker(state=CircuitState.OPEN, opened_at=after(-90), limit_key="customer-17")
    both = [Breaker(state=CircuitState.FORCED_OPEN, opened_at=after(-10)), of_key]
    metric = circuits_found(payments=both)["circuit_open_seconds:payments"]
    assert (metric.names, metric.value) == (None, 90.0)


def test_an_alert_of_a_circuit_says_what_opened_it_and_what_the_last_call_got() -> None:
    down = replace(OPENED, opened_at=after(-400), reason="9 of 10 calls failed", last_error="503: no backend")
    of_key = replace(down, opened_at=after(-500), limit_key="customer-17")
    (alert,) = alert_changes({}, [circuits_found(payments=[down])["circuit_open_seconds:payments"]], NOON)
    why = "pen since 2026-11-21T11:53:20Z: 9 of 10 calls failed, the last call got 503: no backend."
    assert alert.text == f"Circuit not closed, payments: 6 min, over the threshold of 5 min. O{why}"
    of_one = circuits_found(payments=[Breaker(), of_key])["circuit_open_seconds:payments"]
    assert existing(of_one.why).startswith("open since 2026-11-21T11:51:40Z: 9 of 10 calls")
    of_both = circuits_found(payments=[down, of_key])["circuit_open_seconds:payments"]
    assert existing(of_both.why).startswith("for customer-17: open since 2026-11-21T11:51:40Z: 9 of 10 calls")


def test_a_pause_is_raised_at_once_and_says_who_asked_for_it_and_until_when() -> None:
    asked = Breaker(
        throttled_since=after(-30), throttled_until=after(1_770), throttled_by="429 (Retry-After)"
    )
    of_key = replace(asked, limit_key="customer-17")
    metric = circuits_found(payments=[asked])["paused_seconds:payments"]
    (alert,) = alert_changes({}, [metric], NOON)
    assert alert.text == (
        "Paused at its own request, payments: 30 min, over the threshold of 5 min. "
        "Paused by 429 (Retry-After) until 2026-11-21T12:29:30Z."
    )
    assert circuits_found(payments=[Breaker(), of_key])["paused_seconds:payments"].names == ("customer-17",)
    over = circuits_found(payments=[replace(asked, throttled_until=NOON)])["paused_seconds:payments"]
    assert (over.value, over.why) == (0.0, None)
    (ended,) = alert_changes({metric.condition: alert}, [over], after(1_800))
    assert ended.text == "Pause over, payments. It was paused for about 30 min."


def test_a_refused_credential_has_its_own_alert_with_the_limit_keys_whose_credential_it_is() -> None:
    of_key = Breaker(
        state=CircuitState.OPEN, opened_at=after(-90), limit_key="customer-17", unauthorized_by="401"
    )
    down = Breaker(state=CircuitState.OPEN, opened_at=after(-95), limit_key="customer-18")
    own = Breaker(state=CircuitState.HALF_OPEN, opened_at=after(-70), unauthorized_by="407")
    metrics = circuits_found(payments=[own], idle=[Breaker(), down, of_key])
    whole, keyed = (metrics[f"credential_refused_seconds:{name}"] for name in ("payments", "idle"))
    assert (whole.value, whole.names, whole.is_exceeded) == (70.0, None, True)
    assert (keyed.value, keyed.names, keyed.is_exceeded) == (90.0, ("customer-17",), True)
    (alert,) = alert_changes({}, [keyed], NOON)
    assert alert.text == (
        "Credential refused, idle (customer-17): 1 min, over the threshold of 1 min. "
        "The credential is refused (401): set a new one; open since 2026-11-21T11:58:30Z. "
        "Its operations wait, lose no attempt, and go on once a new one works."
    )


async def test_whether_operations_are_held_is_not_known_before_all_were_looked_at(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = await App(monkeypatch, **WELL | {"holding": None}).look()
    assert metrics["held"].value is None
    assert not caplog.records


async def test_what_stands_still_is_named_and_counts_from_the_first_that_was_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck = [
        StuckInstance(instance_id=f"op-{age}", orchestration="operation", since=after(-age), noted_at=NOON)
        for age in (400, 300)
    ]
    metric = (await App(monkeypatch, **WELL | {"standstill": stuck}).look())["stuck_seconds"]
    assert (metric.value, metric.names, metric.is_exceeded) == (400.0, ("op-400", "op-300"), True)
