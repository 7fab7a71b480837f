"""The rules of a bulk replay: pace, filter, progress."""

from datetime import timedelta
from typing import Any

import pytest

from durable_retry.console.bulk.document import BulkReplayDocument, action_document, progress_document
from durable_retry.console.bulk.shapes import (
    KEPT_FAILURES,
    BatchPace,
    BulkAction,
    BulkActionBody,
    BulkItem,
    BulkReplayBody,
    ItemOutcome,
    ReplayProgress,
    ReplayState,
    UnfinishedFilter,
    checked_input,
    counts_of,
)
from durable_retry.engine.base.instants import to_rfc3339
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.base.validation import InvalidInputError, validated
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.record import Status
from tests.support.builders import NOON, after

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


def test_the_document_says_what_remains() -> None:
    document = progress_document(GIVEN, ReplayState.RUNNING, ReplayProgress(replayed=3, skipped=1, failed=1))
    assert (document.remaining, document.status, document.waiting_until) == (5, "running", None)


def an_action(**body: Any) -> BulkActionBody:
    return validated(BulkActionBody, body)


def test_an_action_on_dead_letters_takes_the_filter_of_a_replay() -> None:
    wanted = an_action(action="archive", filter={"dependency": "payments"}).wanted(NOON)
    assert wanted == DeadLetterFilter(status=Status.OPEN, dependency="payments", created_before=NOON)


@pytest.mark.parametrize(("before", "limit"), [(None, 0), (-60, -60), (60, 0)])
def test_an_action_on_operations_meets_what_exists_and_has_not_ended(before: int | None, limit: int) -> None:
    given = {} if before is None else {"created_before": to_rfc3339(after(before))}
    body = an_action(action="cancel", filter={"status": "waiting_retry", "dependency": "payments"} | given)
    wanted = body.wanted(NOON)
    assert wanted == UnfinishedFilter(
        status=OperationState.WAITING_RETRY, dependency="payments", created_before=after(limit)
    )
    assert UnfinishedFilter.from_json(wanted.to_json()) == wanted
    assert an_action(action="retry_now", filter={}).wanted(NOON) == UnfinishedFilter(created_before=NOON)


def test_a_selection_has_no_filter() -> None:
    assert an_action(action="replay", ids=["dl-1"]).wanted(NOON) is None


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"action": "archive"}, [""]),
        ({"action": "archive", "filter": {}, "ids": ["dl-1"]}, [""]),
        ({"action": "cancel", "filter": {}, "note": "why"}, ["/note"]),
        ({"action": "cancel", "filter": {"group": "g"}}, ["/filter/group"]),
        (
            {"action": "replay", "filter": {"status": "archived", "reason": "x"}},
            ["/filter/status", "/filter/reason"],
        ),
    ],
)
def test_what_does_not_fit_an_action_is_refused(body: dict[str, Any], pointers: list[str]) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        an_action(**body).wanted(NOON)
    assert [problem.pointer for problem in refusal.value.problems] == pointers


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


def test_a_selection_names_each_once_and_a_replay_of_many_has_none() -> None:
    replay = validated(BulkReplayBody, {"filter": {}})
    assert (replay.what, replay.selection) == (BulkAction.REPLAY, [])
    archive = an_action(action="archive", ids=["dl-2", "dl-1", "dl-2"])
    assert (archive.what, archive.selection) == (BulkAction.ARCHIVE, ["dl-2", "dl-1"])
