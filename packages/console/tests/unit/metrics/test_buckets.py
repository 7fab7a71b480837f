"""Durations in buckets, and percentiles of them."""

from collections import Counter
from random import Random

import pytest

from durable_retry_console.metrics.buckets import LAST_BUCKET, bucket_of, percentile_ms


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
