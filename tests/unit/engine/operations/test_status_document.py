from typing import Any

from durable_retry.engine.base.enums import OperationState
from durable_retry.engine.operations.custom_status import is_finished, moving_parts, running_document
from durable_retry.engine.operations.operation import OperationStatus
from durable_retry.engine.retry.history import History
from tests.support.builders import NOON, an_operation

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


def test_both_halves_make_the_whole_document() -> None:
    whole = status(OperationState.RUNNING).to_json()
    assert running_document(an_operation(), moving_parts(status(OperationState.RUNNING))) == whole


def test_what_never_changes_does_not_move_unless_lists_need_it() -> None:
    moving: dict[str, Any] = moving_parts(status(OperationState.RUNNING))
    assert moving.keys() & {"operation_id", "source", "created_at", "result"} == set()
    assert {"key", "dependency"} <= moving.keys()


def test_three_states_are_the_end() -> None:
    ended = {state.value for state in OperationState if is_finished({"status": state.value})}
    assert ended == {"succeeded", "dead_lettered", "cancelled"}
