"""Numbers of what happened: what counts, how they add up, and what people see of them."""

from collections import Counter
from random import Random

import pytest

from durable_retry.base.names import Category, Priority
from durable_retry.rules.facts import Fact, LimitsRead, SubmissionOutcome, Submitted, WaitEnded
from durable_retry.rules.retry.history import WaitKind
from durable_retry_console.metrics.counts import (
    LAST_BUCKET,
    Counts,
    bucket_of,
    from_text,
    percentile_ms,
    summed,
    to_text,
)
from durable_retry_console.metrics.document import MetricFigures, Waited
from tests.support.builders import an_operation
from tests.support.counting import attempt_ended, counted, operation_ended

NORMAL, HIGH = an_operation(), an_operation(priority=Priority.HIGH)


def attempts(*durations_ms: float) -> Counts:
    return counted(*map(attempt_ended, durations_ms))


def busy() -> Counts:
    facts: tuple[Fact, ...] = (
        *(Submitted(each, SubmissionOutcome.STARTED) for each in (HIGH, NORMAL, NORMAL)),
        Submitted(NORMAL, SubmissionOutcome.REPLAYED),
        attempt_ended(900.0, Category.TRANSIENT, number=2),
        attempt_ended(900.0, Category.TRANSIENT, number=2, counted=False),
        operation_ended(1.5, priority="high"),
        WaitEnded(HIGH, WaitKind.RETRY, 2.0, 0.25),
        WaitEnded(NORMAL, WaitKind.RETRY, 3.0, None),
        LimitsRead("payments", 8, 0),
        LimitsRead("payments", 5, 0),
    )
    return summed((attempts(40.0, 60.0), counted(*facts), {"openings": 1}))


def shown(counts: Counts) -> MetricFigures:
    return MetricFigures.of(counts)


def test_an_attempt_that_was_not_sent_is_no_attempt() -> None:
    view = shown(busy()).to_json()
    assert (view["attempts"], view["retries"], view["not_sent"]) == (3, 1, 1)
    assert (view["failures"], view["failures_by_category"]) == (1, {"transient": 1})
    assert view["amplification"] == 1.5
    assert view["waits"] == {"retry": {"count": 2, "seconds": 5.0}}
    assert (view["ended"], view["ended_by_status"]) == (1, {"succeeded": 1})
    assert view["late_ms"]["p95"] == pytest.approx(250, rel=0.19)
    assert view["openings"] == 1
    assert view["attempt_seconds"] == 1.0


def test_what_is_neither_high_nor_low_is_normal() -> None:
    more = counted(
        WaitEnded(HIGH, WaitKind.LIMIT, 0.5, None),
        WaitEnded(NORMAL, WaitKind.CIRCUIT, 8.0, None),
        operation_ended(60.0),
    )
    high, normal = shown(summed((busy(), more))).by_priority.values()
    assert (high.started, high.waits) == (1, Waited(count=1, seconds=0.5))
    assert high.operation_ms.p50 == pytest.approx(1_500, rel=0.19)
    assert (normal.started, normal.waits) == (2, Waited(count=1, seconds=8.0))
    assert normal.operation_ms.p50 == pytest.approx(60_000, rel=0.19)


def test_where_everything_is_normal_no_priority_is_shown() -> None:
    assert shown(attempts(1.0)).by_priority == {}


def test_operations_with_a_debounce_key_count_by_what_became_of_them() -> None:
    view = shown({"debounce|replaced": 2, "debounce|ran": 1})
    assert (view.debounce_replaced, view.debounce_ran) == (2, 1)


def test_amplification_needs_a_first_attempt() -> None:
    assert shown(counted(attempt_ended(1.0, number=2))).amplification is None


def test_numbers_add_up_and_survive_storage() -> None:
    one = busy()
    assert from_text(to_text({"payments": one, "mail": {}})) == {"payments": one, "mail": {}}
    both = shown(summed((one, busy())))
    assert both.waits == {"retry": Waited(count=4, seconds=10.0)}
    assert (both.started, both.not_sent, both.openings) == (6, 2, 2)
    assert both.attempt_seconds == 2.0
    assert both.by_priority[Priority.HIGH].started == 2
    assert both.attempt_ms == shown(one).attempt_ms
    assert one == busy()  # it was not changed


def test_limits_are_the_mean_of_what_was_read_and_of_several_dependencies_there_is_none() -> None:
    counts = summed((busy(), counted(LimitsRead("payments", 2, 0))))
    assert (shown(counts).current_concurrency, shown(counts).current_rate_per_second) == (5.0, None)
    assert MetricFigures.of(counts, with_limits=False).current_concurrency is None


def test_a_number_of_another_name_is_ignored() -> None:
    assert shown({"bytes": 3, "limit|bytes": 5}) == shown({})


@pytest.mark.parametrize(
    "text",
    ['{"payments": {"started": "2"}}', '{"payments": {"started": NaN}}', '{"payments": {"started": null}}'],
)
def test_what_is_stored_and_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"payments\.started"):
        from_text(text)


@pytest.mark.parametrize(
    ("milliseconds", "bucket"),
    [(-1.0, 0), (0.0, 0), (0.999, 0), (1.0, 1), (1.99, 4), (2.0, 5), (4.0, 9), (1e12, LAST_BUCKET)],
)
def test_a_bucket_is_a_quarter_of_a_doubling(milliseconds: float, bucket: int) -> None:
    assert bucket_of(milliseconds) == bucket


def test_a_percentile_is_within_a_bucket_of_the_exact_one() -> None:
    rng = Random(7)  # noqa: S311 - no secret
    durations = sorted(rng.lognormvariate(4, 1.5) for _ in range(2_000))
    times = Counter(map(bucket_of, durations))
    for share in (0.5, 0.95, 0.99, 1.0):
        found = percentile_ms(times, share)
        exact = durations[round(share * len(durations)) - 1]
        assert found == pytest.approx(exact, rel=0.19)


def test_nothing_has_no_percentile_and_less_than_a_millisecond_has_one() -> None:
    assert percentile_ms({}, 0.5) is None
    assert percentile_ms({0: 4}, 0.5) == 0.5
