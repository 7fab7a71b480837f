"""The rules of a bulk replay: pace, filter, progress."""

from datetime import timedelta
from typing import Any

import pytest

from durable_retry.engine.base.validation import InvalidInputError, validated
from durable_retry.engine.dead_letters.bulk_replay import (
    KEPT_FAILURES,
    BulkReplayBody,
    Pace,
    ReplayProgress,
    ReplayState,
    progress_document,
)
from durable_retry.engine.dead_letters.record import Status
from tests.support.builders import NOON


@pytest.mark.parametrize(
    ("rate", "batch", "seconds"), [(0.1, 1, 10), (1, 1, 1), (5, 5, 1), (20, 20, 1), (100, 25, 0.25)]
)
def test_a_pace_keeps_the_rate(rate: float, batch: int, seconds: float) -> None:
    pace = Pace.of(rate)
    assert (pace.batch, pace.interval) == (batch, timedelta(seconds=seconds))


@pytest.mark.parametrize("rate", [0.001, 0.7, 1.9, 7.3, 33.3, 99.9])
def test_a_pace_is_never_faster_than_asked(rate: float) -> None:
    pace = Pace.of(rate)
    assert pace.batch / pace.interval.total_seconds() <= rate * 1.000001


def test_a_bulk_replay_never_meets_what_fails_after_its_start() -> None:
    body = validated(BulkReplayBody, {"filter": {"dependency": "payments"}})
    wanted = body.filter.wanted(NOON)
    assert (wanted.status, wanted.created_before, wanted.dependency) == (Status.OPEN, NOON, "payments")
    earlier = {"filter": {"created_before": "2026-11-20T00:00:00Z"}}
    assert validated(BulkReplayBody, earlier).filter.wanted(NOON).created_before == NOON - timedelta(hours=36)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/filter"),
        ({"filter": {"status": "archived"}}, "/filter/status"),
        ({"filter": {"reason": "Sad"}}, "/filter/reason"),
        ({"filter": {"category": "Sad"}}, "/filter/category"),
        ({"filter": {"created_after": "yesterday"}}, "/filter/created_after"),
        ({"filter": {"raeson": "x"}}, "/filter/raeson"),
        ({"filter": {}, "rate_per_second": 0}, "/rate_per_second"),
        ({"filter": {}, "rate_per_second": 1000}, "/rate_per_second"),
        ({"filter": {}, "dry_run": 1}, "/dry_run"),
    ],
)
def test_every_mistake_is_reported_with_its_pointer(body: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        validated(BulkReplayBody, body)
    assert [problem.pointer for problem in refusal.value.problems] == [pointer]


def test_progress_adds_up_and_keeps_the_latest_failures() -> None:
    failures = [{"id": f"dl-{number}", "detail": "no" * 500} for number in range(KEPT_FAILURES + 1)]
    progress = ReplayProgress().plus({"replayed": 2, "skipped": 1, "failures": []})
    progress = progress.plus({"replayed": 0, "skipped": 0, "failures": failures})
    assert (progress.replayed, progress.skipped, progress.failed) == (2, 1, KEPT_FAILURES + 1)
    assert [failure["id"] for failure in progress.failures] == [one["id"] for one in failures[1:]]
    assert ReplayProgress.from_json(progress.to_json()) == progress


def test_the_document_says_what_remains() -> None:
    given = {
        "replay_id": "replay-1",
        "filter": {},
        "rate_per_second": 5,
        "matched": 10,
        "note": None,
        "created_at": "2026-11-21T09:00:00Z",
    }
    document = progress_document(given, ReplayState.RUNNING, ReplayProgress(replayed=3, skipped=1, failed=1))
    assert (document["remaining"], document["status"], document["waiting_until"]) == (5, "running", None)
