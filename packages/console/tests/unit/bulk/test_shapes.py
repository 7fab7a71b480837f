"""The rules of a bulk replay: pace, filter, progress."""

from datetime import timedelta

import pytest

from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry_console.bulk.document import BulkReplayDocument, action_document, progress_document
from durable_retry_console.bulk.shapes import (
    KEPT_FAILURES,
    BatchPace,
    BulkAction,
    BulkItem,
    ItemOutcome,
    ReplayProgress,
    ReplayState,
    checked_input,
    counts_of,
)

GIVEN = {
    "replay_id": "replay-1",
    "filter": {},
    "rate_per_second": 5,
    "matched": 10,
    "note": None,
    "created_at": "2026-11-21T09:00:00Z",
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
    failures = [{"id": f"dl-{number}", "detail": "no" * 500} for number in range(KEPT_FAILURES + 1)]
    progress = ReplayProgress().plus({"replayed": 2, "skipped": 1, "failures": []})
    progress = progress.plus({"replayed": 0, "skipped": 0, "failures": failures})
    assert (progress.replayed, progress.skipped, progress.failed) == (2, 1, KEPT_FAILURES + 1)
    assert [failure["id"] for failure in progress.failures] == [one["id"] for one in failures[1:]]
    assert ReplayProgress.from_json(progress.to_json()) == progress


def test_the_items_of_a_batch_are_counted_by_their_outcomes() -> None:
    items = [
        BulkItem(id="dl-1", outcome=ItemOutcome.REPLAYED, operation_id="op-1"),
        BulkItem(id="dl-2", outcome=ItemOutcome.DONE),
        BulkItem(id="dl-3", outcome=ItemOutcome.SKIPPED, detail="it is archived"),
        BulkItem.failed("dl-4", ValueError("no such dependency")),
        BulkItem.failed("dl-5", TimeoutError()),
    ]
    failures = [{"id": "dl-4", "detail": "no such dependency"}, {"id": "dl-5", "detail": "TimeoutError"}]
    assert counts_of(items) == {"replayed": 2, "skipped": 1, "failures": failures}
    assert [BulkItem.from_json(item.to_json()) for item in items] == items


def test_an_item_is_stored_with_a_short_detail() -> None:
    item = BulkItem.failed("dl-1", ValueError("no" * 500)).shortened()
    assert len(item.detail or "") <= 200
    done = BulkItem(id="dl-2", outcome=ItemOutcome.DONE)
    assert done.shortened() == done


def test_an_item_says_what_does_not_fit_place_by_place() -> None:
    problems = [Problem(f"/input/{number}", "no" * 500) for number in range(20)]
    item = BulkItem.failed("dl-1", InvalidInputError(problems)).shortened()
    assert [each.pointer for each in item.errors or ()] == [f"/input/{number}" for number in range(10)]
    assert all(len(each.detail) <= 200 for each in item.errors or ())


def test_the_document_says_what_remains() -> None:
    document = progress_document(GIVEN, ReplayState.RUNNING, ReplayProgress(replayed=3, skipped=1, failed=1))
    assert (document.remaining, document.status, document.waiting_until) == (5, "running", None)


def test_the_document_of_an_action_has_its_own_names() -> None:
    given = GIVEN | {"action": "archive", "by": "ada", "selected": 3}
    progress = progress_document(given, ReplayState.RUNNING, ReplayProgress(replayed=2, skipped=1))
    document = action_document(progress, given).to_json()
    assert (document["action"], document["by"], document["selected"]) == ("archive", "ada", 3)
    assert (document["done"], document["skipped"]) == (2, 1)
    assert document.keys().isdisjoint({"replay_id", "replayed"})
    assert action_document(progress, GIVEN).action == "replay"


def test_the_input_and_the_document_of_an_action_are_such_or_an_error() -> None:
    progress = progress_document(GIVEN, ReplayState.RUNNING, ReplayProgress())
    assert checked_input(GIVEN) is GIVEN
    shown = progress.to_json()
    assert BulkReplayDocument.read(shown) == progress
    with pytest.raises(ValueError, match="rate_per_second"):
        checked_input(GIVEN | {"rate_per_second": "fast"})
    with pytest.raises(ValueError, match="status"):
        BulkReplayDocument.read(shown | {"status": "?"})


@pytest.mark.parametrize("outcome", list(ItemOutcome))
def test_what_was_replayed_or_done_is_started(outcome: ItemOutcome) -> None:
    item = BulkItem(id="dl-1", outcome=outcome)
    assert item.is_started is (outcome in {ItemOutcome.REPLAYED, ItemOutcome.DONE})


def test_replays_and_cancellations_end_later() -> None:
    assert [action.value for action in BulkAction if action.has_later_end] == ["replay", "cancel"]
