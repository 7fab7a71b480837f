import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.base.names import OperationState
from durable_retry.rules.operations.status import (
    MAX_BYTES,
    OperationStatus,
    fitted_status,
    is_finished,
    moving_parts,
    running_document,
    size_bytes,
)
from durable_retry.rules.retry.history import KEPT_ATTEMPTS, History, PastAction
from tests.support.builders import NOON, a_history, a_record, after, an_operation
from tests.support.feature_parts import in_order

LATER = after(2)


def a_status(error: str = "", *, events: int = 0, detail: str = "") -> dict[str, Any]:
    record = a_record(error=error, delay_reasons=("r" * 200,) * 12, next_delay_seconds=1.234, number=10**9)
    return {
        "status": "waiting_retry",
        "attempts": [record.to_json()] * KEPT_ATTEMPTS,
        "dead_letter": {"id": "dl-1", "detail": detail},
        "events": [{"event_id": "e" * 36, "type": "t" * 255, "state": "pending"}] * events,
    }


def test_the_status_document_has_the_contracts_fields() -> None:
    record = a_record(next_delay_seconds=1.37, delay_reasons=("exponential 2 s", "full jitter"))
    status = OperationStatus(
        operation=an_operation(correlation_id="order-42"),
        state=OperationState.WAITING_RETRY,
        history=History().with_attempt(record),
        updated_at=after(1),
        next_attempt_at=after(2.37),
        events=({"event_id": "e1", "type": "t", "state": "pending"},),
    )
    assert status.to_json() == {
        "operation_id": "op-test",
        "key": "key-1",
        "dependency": "payments",
        "correlation_id": "order-42",
        "source": "http",
        "status": "waiting_retry",
        "attempt_count": 1,
        "attempts": [
            {
                "number": 1,
                "started_at": "2026-11-21T12:00:00Z",
                "duration_ms": 12.5,
                "category": "transient",
                "status_code": 503,
                "error": None,
                "next_delay_seconds": 1.37,
                "delay_reasons": ["exponential 2 s", "full jitter"],
            }
        ],
        "next_attempt_at": "2026-11-21T12:00:02.370000Z",
        "deadline_at": "2026-11-21T13:00:00Z",
        "result": None,
        "dead_letter": None,
        "events": [{"event_id": "e1", "type": "t", "state": "pending"}],
        "created_at": "2026-11-21T12:00:00Z",
        "updated_at": "2026-11-21T12:00:01Z",
    }
    letter = {"id": "x", "category": "malformed", "reason": "MalformedJson", "detail": ""}
    assert replace(status, dead_letter=letter).to_json()["dead_letter"] == letter


def test_a_small_status_stays_as_it_is() -> None:
    small = {"attempts": a_history(20).to_json()["attempts"], "status": "running"}
    assert fitted_status(small) == small


def test_a_large_status_fits_with_every_attempt_and_marked_cuts() -> None:
    fitted = fitted_status(a_status("e" * 1_000))
    assert size_bytes(fitted) <= MAX_BYTES
    assert len(fitted["attempts"]) == KEPT_ATTEMPTS
    assert all(record["error"].endswith("... (cut)") for record in fitted["attempts"])
    assert all(record["delay_reasons"] for record in fitted["attempts"])
    assert fitted["attempts"][0]["started_at"] == "2026-11-21T12:00:00Z"


def test_the_worst_case_fits() -> None:
    worst = a_status("\U0001f600" * 1_000, events=20, detail="d" * 5_000)
    fitted = fitted_status(worst)
    assert size_bytes(fitted) <= MAX_BYTES
    assert len(fitted["attempts"]) == KEPT_ATTEMPTS
    assert fitted["dead_letter"]["id"] == "dl-1"
    assert fitted["events"] == []


def test_what_cannot_fit_is_cut_as_far_as_it_goes() -> None:
    hopeless = {"attempts": [], "result": "x" * MAX_BYTES}
    assert fitted_status(hopeless) == hopeless


def test_cutting_changes_nothing_in_place() -> None:
    status = a_status("e" * 1_000)
    before = json.dumps(status)
    fitted_status(status)
    assert json.dumps(status) == before


def test_of_many_waits_the_last_are_kept() -> None:
    waits = [{"why": f"{number}", "reasons": ["x" * 300]} for number in range(100)]
    shown = fitted_status({"status": "waiting_circuit", "attempts": [], "waits": waits})
    assert size_bytes(shown) <= MAX_BYTES
    assert shown["waits"][-1]["why"] == "99"
    assert 1 <= len(shown["waits"]) < 100


def test_the_actions_of_people_are_shown_and_cut_to_fit() -> None:
    history = History().with_action(PastAction(action="cancel", at=NOON, by="ada"))
    status = OperationStatus(
        operation=an_operation(), state=OperationState.CANCELLED, history=history, updated_at=NOON
    )
    acted = {"action": "cancel", "at": "2026-11-21T12:00:00Z", "by": "ada", "reason": None}
    assert moving_parts(status.to_json())["actions"] == [acted]
    worst = a_status("\U0001f600" * 1_000) | {"actions": [acted | {"by": "\U0001f600" * 200}] * 5}
    shown = fitted_status(worst)
    assert size_bytes(shown) <= MAX_BYTES
    assert shown["actions"][-1]["at"] == acted["at"]


def test_names_of_other_letters_are_cut_in_the_end_and_whole_in_the_document() -> None:
    named = an_operation(
        correlation_id="\U0001f600" * 255, parts=in_order("\U0001f600" * 255), limit_key="\U0001f600" * 255
    )
    whole = OperationStatus(
        operation=named, state=OperationState.RUNNING, history=a_history(20), updated_at=NOON
    ).to_json()
    moving = moving_parts(whole)
    assert size_bytes(moving) <= MAX_BYTES
    assert len(moving["attempts"]) == 20
    assert running_document(named, moving)["correlation_id"] == "\U0001f600" * 255


CONTRACT = {
    "operation_id",
    "key",
    "dependency",
    "correlation_id",
    "source",
    "status",
    "attempt_count",
    "attempts",
    "next_attempt_at",
    "deadline_at",
    "result",
    "dead_letter",
    "events",
    "created_at",
    "updated_at",
}


def status(state: OperationState) -> OperationStatus:
    return OperationStatus(operation=an_operation(), state=state, history=History(), updated_at=NOON)


def test_an_operation_without_a_first_turn_is_pending() -> None:
    document = running_document(an_operation(), None)
    assert document["status"] == "pending"
    assert document.keys() == CONTRACT


@pytest.mark.parametrize(
    ("changes", "begun_at", "shown"),
    [
        ({"acted_before": True}, None, ("pending", NOON, False)),
        ({"acted_before": True}, LATER, ("running", LATER, True)),
        ({}, LATER, ("running", LATER, False)),
        ({"parts": in_order("customer-1")}, LATER, ("pending", NOON, False)),
        ({"start_at": LATER}, LATER, ("pending", NOON, False)),
    ],
)
def test_one_that_has_begun_and_shown_nothing_makes_its_first_attempt_if_nothing_comes_before(
    changes: dict[str, Any], begun_at: datetime | None, shown: tuple[str, datetime, bool]
) -> None:
    document = running_document(an_operation(**changes), None, begun_at)
    updated_at, may_have_acted = from_rfc3339(document["updated_at"]), document.get("may_have_acted", False)
    assert (document["status"], updated_at, may_have_acted) == shown


def test_both_halves_make_the_whole_document() -> None:
    whole = status(OperationState.RUNNING).to_json()
    assert running_document(an_operation(), moving_parts(status(OperationState.RUNNING).to_json())) == whole


def test_what_never_changes_does_not_move_unless_lists_need_it() -> None:
    moving: dict[str, Any] = moving_parts(status(OperationState.RUNNING).to_json())
    assert moving.keys() & {"operation_id", "deadline_at", "created_at", "result"} == set()
    assert {"key", "dependency", "correlation_id", "source"} <= moving.keys()


def test_the_handler_is_named_where_there_is_one() -> None:
    running = replace(status(OperationState.RUNNING), operation=an_operation(handler="ship", request=None))
    assert moving_parts(running.to_json())["handler"] == "ship"


def test_three_states_are_the_end() -> None:
    ended = {state.value for state in OperationState if is_finished({"status": state.value})}
    assert ended == {"succeeded", "dead_lettered", "cancelled"}
