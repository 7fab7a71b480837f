"""The rules of a bulk action: pace, progress, document, items."""

from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry_console.bulk.document import BulkActionDocument, BulkItem, ItemOutcome
from durable_retry_console.bulk.proof import Proof
from durable_retry_console.bulk.shapes import (
    KEPT_FAILURES,
    BatchPace,
    BatchResult,
    BulkAction,
    BulkFailure,
    BulkInput,
    BulkProgress,
)
from tests.support.builders import NOON, after

GIVEN: dict[str, Any] = {
    "action_id": "bulk-1",
    "action": BulkAction.ARCHIVE,
    "rate_per_second": 5,
    "matched": 10,
    "created_at": NOON,
    "by": "ada",
}


@pytest.mark.parametrize(
    ("rate", "batch", "seconds"), [(0.1, 1, 10), (1, 1, 1), (5, 5, 1), (20, 20, 1), (100, 25, 0.25)]
)
def test_a_pace_keeps_the_rate(rate: float, batch: int, seconds: float) -> None:
    pace = BatchPace.of(rate)
    assert (pace.batch, pace.interval) == (batch, timedelta(seconds=seconds))


@pytest.mark.parametrize("rate", [0.001, 0.7, 1.9, 7.3, 33.3, 99.9])
def test_a_pace_is_never_faster_than_asked(rate: float) -> None:
    pace = BatchPace.of(rate)
    assert pace.batch / pace.interval.total_seconds() <= rate * 1.000001


def test_progress_adds_up_and_keeps_the_latest_failures() -> None:
    failures = tuple(BulkFailure(f"dl-{number}", "no") for number in range(KEPT_FAILURES + 1))
    progress = BulkProgress().plus(BatchResult(started=2, skipped=1)).plus(BatchResult(failures=failures))
    assert (progress.started, progress.under_way, progress.skipped) == (2, 2, 1)
    assert (progress.failed, progress.refused) == (KEPT_FAILURES + 1, KEPT_FAILURES + 2)
    assert progress.failures == failures[1:]
    assert BulkProgress.from_json(progress.to_json()) == progress


def test_an_item_that_failed_has_a_short_detail() -> None:
    assert len(BulkItem.failed("dl-1", ValueError("no" * 500)).detail or "") <= 200
    assert BulkItem.failed("dl-1", TimeoutError()).detail == "TimeoutError"


def test_an_item_says_what_does_not_fit_place_by_place() -> None:
    problems = [Problem(f"/input/{number}", "no" * 500) for number in range(20)]
    item = BulkItem.failed("dl-1", InvalidInputError(problems))
    assert [each.pointer for each in item.errors or ()] == [f"/input/{number}" for number in range(10)]
    assert all(len(each.detail) <= 200 for each in item.errors or ())
    assert BulkItem.read(item.to_json()) == item


@pytest.mark.parametrize("outcome", list(ItemOutcome))
def test_what_was_done_is_under_way_until_its_end_was_seen(outcome: ItemOutcome) -> None:
    item = BulkItem(id="dl-1", outcome=outcome)
    assert item.is_under_way is (outcome is ItemOutcome.DONE)
    assert not item.model_copy(update={"succeeded": False}).is_under_way


def test_the_document_says_what_remains() -> None:
    progress = BulkProgress(started=3, skipped=1, failed=1)
    document = BulkActionDocument.of(BulkInput(**GIVEN), progress).to_json()
    assert (document["action"], document["by"], document["filter"]) == ("archive", "ada", None)
    assert (document["remaining"], document["refused"], document["status"]) == (5, 2, "running")
    assert document.keys().isdisjoint({"patch", "pause", "error", "unreadable"})


def test_what_came_since_the_items_were_counted_is_counted_as_well() -> None:
    document = BulkActionDocument.of(BulkInput(**GIVEN), BulkProgress(started=9, failed=2))
    assert (document.matched, document.remaining) == (11, 0)


def test_the_document_of_a_stopped_replay_says_why_until_it_is_resumed() -> None:
    proof = Proof(stop_at_failed=0.2, since=NOON)
    stopped = BulkProgress(proof=proof, started=1).stopped("1 of 10 replayed: still 422", after(5))
    shown = BulkActionDocument.of(BulkInput(**GIVEN), stopped).to_json()
    told = {name: shown[name] for name in ("status", "stop_at_failed", "reason", "stopped_at")}
    assert told == {
        "status": "stopped",
        "stop_at_failed": 0.2,
        "reason": "1 of 10 replayed: still 422",
        "stopped_at": "2026-11-21T12:00:05Z",
    }
    again = BulkActionDocument.of(BulkInput(**GIVEN), stopped.resumed(after(9)))
    assert (again.status, again.reason, again.stopped_at) == ("running", None, None)
    assert BulkActionDocument.of(BulkInput(**GIVEN), BulkProgress()).stop_at_failed is None


def test_the_document_shows_a_patch_without_its_secrets() -> None:
    step = {"op": "add", "path": "/request/headers/Authorization", "value": "Bearer x"}
    moved = {"op": "move", "from": "/request/json/a", "path": "/request/json/b"}
    given = BulkInput(**GIVEN | {"action": BulkAction.REPLAY, "options": {"patch": [step, moved]}})
    assert BulkActionDocument.of(given, BulkProgress()).patch == [step | {"value": "***"}, moved]


@pytest.mark.parametrize(
    ("options", "reason"), [({"reason": "moving", "of_a_later_version": 1}, "moving"), ({"reason": 7}, None)]
)
def test_the_document_of_a_pause_says_why(options: dict[str, Any], reason: str | None) -> None:
    given = BulkInput(**GIVEN | {"action": BulkAction.PAUSE, "options": options})
    pause = BulkActionDocument.of(given, BulkProgress()).pause
    assert (pause and pause.reason) == reason


def test_replays_lookups_and_cancellations_end_later() -> None:
    assert [action.value for action in BulkAction if action.has_later_end] == ["replay", "lookup", "cancel"]
