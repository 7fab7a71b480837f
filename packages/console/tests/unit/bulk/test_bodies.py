"""What bulk actions are asked for with."""

from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import OperationState
from durable_retry.base.validation import InvalidInputError, validated
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.rules.dead_letters.record import Status
from durable_retry_console.bulk.bodies import BulkActionBody
from durable_retry_console.bulk.proof import Proof
from durable_retry_console.bulk.shapes import BulkAction, UnfinishedFilter
from tests.support.builders import NOON, after

STEP = {"op": "replace", "path": "/request/json/amount", "value": 6}


def an_action(**body: Any) -> BulkActionBody:
    return validated(BulkActionBody, body)


def test_a_replay_never_meets_what_fails_after_its_start() -> None:
    wanted = an_action(action="replay", filter={"dependency": "payments", "status": "open"}).wanted(NOON)
    assert wanted == DeadLetterFilter(status=Status.OPEN, dependency="payments", created_before=NOON)
    earlier = an_action(action="replay", filter={"created_before": "2026-11-20T00:00:00Z"}).wanted(NOON)
    assert earlier is not None
    assert earlier.created_before == NOON - timedelta(hours=36)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"filter": {"status": "ended"}}, "/filter/status"),
        ({"filter": {"reason": "Sad"}}, "/filter/reason"),
        ({"filter": {"category": "Sad"}}, "/filter/category"),
        ({"filter": {"order_key": ""}}, "/filter/order_key"),
        ({"filter": {"priority": "urgent"}}, "/filter/priority"),
        ({"filter": {"created_after": "yesterday"}}, "/filter/created_after"),
        ({"filter": {"raeson": "x"}}, "/filter/raeson"),
        ({"filter": {}, "rate_per_second": 0}, "/rate_per_second"),
        ({"filter": {}, "rate_per_second": 1000}, "/rate_per_second"),
        ({"filter": {}, "dry_run": 1}, "/dry_run"),
        ({"filter": {}, "probe": "no"}, "/probe"),
        ({"filter": {}, "stop_at_failed": 1.1}, "/stop_at_failed"),
    ],
)
def test_every_mistake_is_reported_with_its_pointer(body: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        an_action(action="replay", **body)
    assert [problem.pointer for problem in refusal.value.problems] == [pointer]


@pytest.mark.parametrize("category", [None, "transient"])
def test_a_lookup_meets_what_is_ambiguous_unless_another_category_is_given(category: str | None) -> None:
    wanted = an_action(action="lookup", filter={} if category is None else {"category": category}).wanted(
        NOON
    )
    assert isinstance(wanted, DeadLetterFilter)
    assert (wanted.category, wanted.status) == (category or "ambiguous", Status.OPEN)


def test_an_action_on_dead_letters_takes_the_filter_of_a_replay() -> None:
    wanted = an_action(action="archive", filter={"dependency": "payments"}).wanted(NOON)
    assert wanted == DeadLetterFilter(status=Status.OPEN, dependency="payments", created_before=NOON)


@pytest.mark.parametrize("status", [{}, {"status": "archived"}])
def test_a_restore_meets_what_is_archived(status: dict[str, str]) -> None:
    wanted = an_action(action="restore", filter={"dependency": "payments", **status}).wanted(NOON)
    assert wanted == DeadLetterFilter(status=Status.ARCHIVED, dependency="payments", created_before=NOON)


@pytest.mark.parametrize(("action", "kind"), [("replay", DeadLetterFilter), ("pause", UnfinishedFilter)])
def test_many_are_chosen_by_what_decides_their_turn(
    action: str, kind: type[DeadLetterFilter | UnfinishedFilter]
) -> None:
    names = {"order_key": "lane-7", "priority": "low", "limit_key": "customer-17", "debounce_key": "stock-3"}
    wanted = an_action(action=action, filter=names).wanted(NOON)
    assert isinstance(wanted, kind)
    assert wanted.turn_names == names
    assert kind.from_json(wanted.to_json()) == wanted
    assert not names.keys() & kind().to_json().keys()  # Nobody asked for them.


def test_a_batch_stands_in_place_of_a_filter_for_dead_letters_only() -> None:
    assert an_action(action="replay", batch_id="batch-1").wanted(NOON) is None
    for body in (
        {"action": "cancel", "batch_id": "b"},
        {"action": "replay", "batch_id": "b", "ids": ["dl-1"]},
    ):
        with pytest.raises(InvalidInputError):
            an_action(**body).wanted(NOON)


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


def test_a_resume_of_all_meets_those_that_are_paused() -> None:
    paused = UnfinishedFilter(status=OperationState.PAUSED, dependency="payments", created_before=NOON)
    assert an_action(action="resume", filter={"dependency": "payments"}).wanted(NOON) == paused
    assert an_action(action="pause", filter={}).wanted(NOON) == UnfinishedFilter(created_before=NOON)
    running = an_action(action="resume", filter={"status": "running"}).wanted(NOON)
    assert isinstance(running, UnfinishedFilter)
    assert running.status is OperationState.RUNNING


def test_a_resume_at_once_meets_those_that_are_not_paused_too() -> None:
    assert an_action(action="resume", filter={}, at_once=True).wanted(NOON) == UnfinishedFilter(
        created_before=NOON
    )


def test_a_selection_has_no_filter() -> None:
    assert an_action(action="replay", ids=["dl-1"]).wanted(NOON) is None


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"action": "archive"}, [""]),
        ({"action": "archive", "filter": {}, "ids": ["dl-1"]}, [""]),
        ({"action": "cancel", "filter": {}, "note": "why"}, ["/note"]),
        ({"action": "archive", "filter": {}, "note": "why", "patch": [STEP]}, ["/patch"]),
        ({"action": "cancel", "filter": {}, "downstream_key": "new"}, ["/downstream_key"]),
        (
            {"action": "lookup", "filter": {}, "note": "why", "patch": [STEP], "probe": True},
            ["/patch", "/probe"],
        ),
        (
            {"action": "archive", "filter": {}, "probe": True, "stop_at_failed": 0.5},
            ["/probe", "/stop_at_failed"],
        ),
        ({"action": "cancel", "filter": {"group": "g"}}, ["/filter/group"]),
        ({"action": "cancel", "filter": {"status": "archived"}}, ["/filter/status"]),
        ({"action": "archive", "filter": {"status": "archived"}}, ["/filter/status"]),
        ({"action": "restore", "filter": {"status": "open"}, "patch": [STEP]}, ["/filter/status", "/patch"]),
        (
            {
                "action": "pause",
                "filter": {"status": "open", "reason": "PoisonMessage", "category": "malformed"},
            },
            ["/filter/status", "/filter/reason", "/filter/category"],
        ),
        ({"action": "replay", "filter": {}, "reason": "why"}, ["/reason"]),
        (
            {"action": "resume", "ids": ["op-1"], "for_seconds": 60, "from_step": "a", "note": "why"},
            ["/for_seconds", "/from_step", "/note"],
        ),
        ({"action": "pause", "ids": ["op-1"], "reason": "why", "downstream_key": "new"}, ["/downstream_key"]),
        ({"action": "pause", "ids": ["op-1"], "priority": "high"}, ["/priority"]),
        ({"action": "replay", "ids": ["dl-1"], "retry": {}, "at_once": True}, ["/at_once", "/retry"]),
        (
            {"action": "replay", "filter": {"status": "running", "dependency": "x"}, "reason": "why"},
            ["/filter/status", "/reason"],
        ),
    ],
)
def test_what_does_not_fit_an_action_is_refused(body: dict[str, Any], pointers: list[str]) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        an_action(**body).wanted(NOON)
    assert [problem.pointer for problem in refusal.value.problems] == pointers


def test_a_selection_names_each_once() -> None:
    archive = an_action(action="archive", ids=["dl-2", "dl-1", "dl-2"])
    assert (archive.what, archive.selection) == (BulkAction.ARCHIVE, ("dl-2", "dl-1"))


def test_the_options_of_a_replay_are_kept_as_they_were_written() -> None:
    moved = {"op": "move", "from": "/input/a", "path": "/input/b"}
    body = an_action(action="replay", ids=["dl-1"], note="why", patch=[STEP, moved])
    assert body.options == {"note": "why", "patch": [STEP, moved]}
    assert an_action(action="replay", ids=["dl-1"]).options == {}


def test_a_pause_of_many_keeps_why_and_for_how_long() -> None:
    body = an_action(action="pause", ids=["op-1"], reason="moving", for_seconds=60, stops_deadline=True)
    assert body.options == {"reason": "moving", "for_seconds": 60.0, "stops_deadline": True}
    assert an_action(action="pause", ids=["op-1"]).options == {}


def test_a_resume_of_many_keeps_what_it_changes() -> None:
    change = {
        "retry": {"max_attempts": 3},
        "deadline_seconds": 60.0,
        "priority": "high",
        "reason": "it is back",
    }
    assert an_action(action="resume", ids=["op-1"], **change).options == change


@pytest.mark.parametrize(
    ("body", "stop_at_failed"),
    [
        ({"action": "replay"}, 0.5),
        ({"action": "replay", "stop_at_failed": 0}, 0.0),
        ({"action": "replay", "probe": False, "stop_at_failed": 0}, None),
        ({"action": "archive"}, None),
    ],
)
def test_a_replay_proves_itself_unless_it_is_to_send_all(
    body: dict[str, Any], stop_at_failed: float | None
) -> None:
    proof = an_action(**body, filter={}).proof(NOON)
    wanted = None if stop_at_failed is None else Proof(stop_at_failed=stop_at_failed, since=NOON)
    assert proof == wanted
