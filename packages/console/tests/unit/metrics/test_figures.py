"""Figures over time: buckets, percentiles, sums and steps."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from durable_retry.engine.base.names import Priority
from durable_retry.engine.operations.debounce import DebounceOutcome
from durable_retry_console.metrics.buckets import Waited
from durable_retry_console.metrics.figures import (
    CELL,
    MINUTE,
    MOST_POINTS,
    Figures,
    LimitKind,
    floored,
    points_of,
    step_for,
    summed,
)
from tests.support.builders import NOON, after


def attempts(*durations_ms: float) -> Figures:
    figures = Figures()
    for duration_ms in durations_ms:
        figures.count_attempt(1, None, duration_ms, counted=True)
    return figures


def busy() -> Figures:
    figures = attempts(40.0, 60.0)
    for priority in (Priority.HIGH, None, None):
        figures.count_start(priority)
    figures.count_attempt(2, "transient", 900.0, counted=True)
    figures.count_attempt(2, "transient", 900.0, counted=False)
    figures.count_end("succeeded", 1.5, Priority.HIGH)
    figures.count_wait("retry", 2.0, Priority.HIGH)
    figures.count_wait("retry", 3.0)
    figures.count_late(0.25)
    figures.openings += 1
    figures.read_limit(LimitKind.CONCURRENCY, 8)
    figures.read_limit(LimitKind.CONCURRENCY, 5)
    return figures


def test_an_attempt_that_was_not_sent_is_no_attempt() -> None:
    view = busy().shown().to_json()
    assert (view["attempts"], view["retries"], view["not_sent"]) == (3, 1, 1)
    assert view["failures_by_category"] == {"transient": 1}
    assert view["amplification"] == 1.5
    assert view["waits"] == {"retry": {"count": 2, "seconds": 5.0}}
    assert view["ended_by_status"] == {"succeeded": 1}
    assert view["late_ms"]["p95"] == pytest.approx(250, rel=0.19)
    assert view["openings"] == 1
    assert view["attempt_seconds"] == 1.0


def test_what_is_neither_high_nor_low_is_normal() -> None:
    figures = busy()
    figures.count_wait("limit", 0.5, Priority.HIGH)
    figures.count_wait("circuit", 8.0)
    figures.count_end("succeeded", 60.0)
    high, normal = figures.shown().by_priority.values()
    assert (high.started, high.waits) == (1, Waited(count=1, seconds=0.5))
    assert high.operation_ms.p50 == pytest.approx(1_500, rel=0.19)
    assert (normal.started, normal.waits) == (2, Waited(count=1, seconds=8.0))
    assert normal.operation_ms.p50 == pytest.approx(60_000, rel=0.19)


def test_where_everything_is_normal_no_priority_is_shown() -> None:
    assert attempts(1.0).shown().by_priority == {}


def test_operations_with_a_debounce_key_count_by_what_became_of_them() -> None:
    figures = Figures()
    for outcome in (DebounceOutcome.REPLACED, DebounceOutcome.REPLACED, DebounceOutcome.RAN):
        figures.count_debounce(outcome)
    shown = Figures.from_json(figures.to_json()).shown()
    assert (shown.debounce_replaced, shown.debounce_ran) == (2, 1)


def test_amplification_needs_a_first_attempt() -> None:
    figures = Figures()
    figures.count_attempt(2, None, 1.0, counted=True)
    assert figures.shown().amplification is None


def test_figures_add_up_and_survive_storage() -> None:
    one, other = busy(), busy()
    stored = json.loads(json.dumps(one.to_json()))
    assert Figures.from_json(stored) == one
    assert Figures().to_json() == {}
    both = summed([one, other])
    assert both.attempt_times == {bucket: 2 * count for bucket, count in one.attempt_times.items()}
    assert both.late_times == {bucket: 2 * count for bucket, count in one.late_times.items()}
    assert both.shown().waits == {"retry": Waited(count=4, seconds=10.0)}
    assert (both.started, both.not_sent, both.openings) == (6, 2, 2)
    assert both.shown().attempt_seconds == 2.0
    assert both.shown().by_priority[Priority.HIGH].started == 2
    assert one == other  # neither was changed


def test_limits_are_the_mean_of_what_was_read() -> None:
    one, other = busy(), Figures()
    other.read_limit(LimitKind.CONCURRENCY, 2)
    shown = summed([one, other]).shown()
    assert (shown.current_concurrency, shown.current_rate_per_second) == (5.0, None)
    assert one.without_limits().shown() == replace(one, limits={}).shown()
    assert one.shown().current_concurrency == 6.5  # it was not changed


def test_what_was_never_counted_is_not_stored_and_an_unknown_limit_is_ignored() -> None:
    assert Figures.from_json({"attempts": 2}) == Figures(attempts=2)
    unknown = Figures.from_json({"limits": {"bytes": [1, 2.0]}})
    assert unknown.shown() == Figures().shown()


@pytest.mark.parametrize(
    ("minutes", "step"),
    [
        (1, MINUTE),
        (15, MINUTE),
        (60, MINUTE),
        (6 * 60, CELL),
        (24 * 60, timedelta(minutes=10)),
        (72 * 60, timedelta(minutes=30)),
        (7 * 24 * 60, timedelta(hours=1)),
    ],
)
def test_a_step_keeps_a_range_to_a_few_points(minutes: int, step: timedelta) -> None:
    begin = NOON - timedelta(minutes=minutes)
    assert step_for(begin, NOON, NOON - timedelta(days=9)) == step
    assert len(points_of([], begin, NOON, step)) <= MOST_POINTS


def test_what_is_folded_has_no_minutes() -> None:
    begin = NOON - timedelta(minutes=15)
    assert step_for(begin, NOON, begin) == MINUTE
    assert step_for(begin, NOON, NOON) == CELL


def test_points_are_filled_and_what_is_outside_is_left_out() -> None:
    cells = [(after(seconds), attempts(5.0)) for seconds in (-61, -60, 0, 59, 60, 120)]
    points = points_of(cells, NOON, after(100), MINUTE)
    assert [(f"{point.at:%H:%M}", point.attempts) for point in points] == [("12:00", 2), ("12:01", 1)]
    assert points[0].attempt_ms.p50 is not None


def test_a_step_begins_on_a_multiple_of_itself() -> None:
    instant = datetime(2026, 11, 22, 13, 47, 31, 5, UTC)
    assert floored(instant, CELL) == datetime(2026, 11, 22, 13, 45, tzinfo=UTC)
    assert floored(instant, timedelta(days=1)) == datetime(2026, 11, 22, tzinfo=UTC)
