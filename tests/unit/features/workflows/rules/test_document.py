from dataclasses import replace
from typing import Any

import pytest

from durable_retry.base.names import FINISHED, Category, OperationState
from durable_retry.features.workflows.rules.document import (
    BatchCounts,
    batch_state_of,
    counts_of,
    saga_document,
    why_batch_failed,
)
from durable_retry.features.workflows.rules.shapes import BatchState, ItemState, Saga, SagaStep
from durable_retry.rules.operations.completion import Completion
from tests.support.builders import NOON, an_operation

DEAD = OperationState.DEAD_LETTERED
LOST, GONE = ItemState.DEAD_LETTERED, ItemState.CANCELLED


@pytest.mark.parametrize(
    ("failed", "tolerated", "why"),
    [
        ([LOST], 0, "1 dead letter of 2 items; none is tolerated"),
        (
            [LOST, LOST, GONE],
            2,
            "2 dead letters and 1 cancelled of 4 items; 2 tolerated",
        ),
    ],
)
def test_a_batch_says_why_it_counts_as_failed(failed: list[ItemState], tolerated: int, why: str) -> None:
    assert why_batch_failed(counts_of([ItemState.SUCCEEDED, *failed]), tolerated) == why


@pytest.mark.parametrize(
    ("items", "tolerated", "state"),
    [
        ([LOST, LOST, ItemState.PENDING], 0, BatchState.RUNNING),
        ([ItemState.SUCCEEDED, LOST, GONE], 2, BatchState.SUCCEEDED),
        ([ItemState.SUCCEEDED, LOST, GONE], 1, BatchState.FAILED),
    ],
)
def test_a_batch_fails_once_all_have_ended_and_too_many_failed(
    items: list[ItemState], tolerated: int, state: BatchState
) -> None:
    assert batch_state_of(counts_of(items), tolerated) is state


def test_a_batch_counts_the_states_that_an_item_has() -> None:
    """What a running operation waits for, its own document says: a count of it would always be 0."""
    assert BatchCounts.model_fields.keys() == {"total", *ItemState}
    assert {OperationState(state) for state in ItemState} == {*FINISHED, "pending", "running"}


DONE = Completion(operation_id="op-1", status=OperationState.SUCCEEDED)
REFUSED = Completion(
    operation_id="op-1",
    status=DEAD,
    category=Category.BUSINESS_RULE,
    error="RejectedByDependency: status 402",
    status_code=402,
    dead_letter_id="dl-1",
)
UNKNOWN = replace(REFUSED, category=Category.AMBIGUOUS, status_code=None, may_have_acted=True)


def a_saga(*ends: tuple[Completion | None, Completion | None], undoes: bool = True) -> dict[str, Any]:
    """Return the document of a saga of `reserve`, `charge` and `ship`, by how each ended and was undone."""
    undo = an_operation() if undoes else None
    names = ("reserve", "charge", "ship")
    steps = tuple(
        SagaStep(name=name, operation=an_operation(), compensation=undo, done=done, undone=undone)
        for name, (done, undone) in zip(names, (*ends, (None, None), (None, None)), strict=False)
    )
    return saga_document(Saga(saga_id="saga-1", steps=steps, created_at=NOON), NOON).to_json()


def test_a_saga_whose_step_failed_says_which_and_how_and_what_is_left() -> None:
    shown = a_saga((DONE, DONE), (REFUSED, None))
    assert (shown["status"], shown["effect"]) == ("compensated", "undone")
    assert (shown["reason"], shown["error"]) == (
        "charge was refused (402)",
        "RejectedByDependency: status 402",
    )
    assert [(step["status"], step["effect"]) for step in shown["steps"]] == [
        ("succeeded", "undone"),
        ("dead_lettered", "none"),
        ("not_run", "none"),
    ]
    assert [step.get("dead_letter_id") for step in shown["steps"]] == [None, "dl-1", None]


def test_a_saga_none_of_whose_steps_failed_has_no_reason_and_waits_with_the_rest() -> None:
    shown = a_saga((DONE, None))
    assert {"reason", "error", "effect"}.isdisjoint(shown)
    assert [step["status"] for step in shown["steps"]] == ["succeeded", "running", "pending"]


@pytest.mark.parametrize(
    ("ends", "undoes", "effect"),
    [
        ([(REFUSED, None)], True, "none"),
        ([(DONE, None), (REFUSED, None)], False, "none"),  # Nothing undoes it.
        ([(DONE, DONE), (UNKNOWN, UNKNOWN)], True, "unknown"),
        ([(DONE, REFUSED), (REFUSED, None)], True, "stands"),
        ([(DONE, None), (REFUSED, None)], True, None),  # It is being undone.
    ],
)
def test_what_is_left_of_a_saga_is_known_once_it_is_over(
    ends: list[tuple[Completion | None, Completion | None]], effect: str | None, *, undoes: bool
) -> None:
    assert a_saga(*ends, undoes=undoes).get("effect") == effect


@pytest.mark.parametrize(
    ("done", "reason"),
    [
        (replace(REFUSED, status_code=None), "reserve was refused"),
        # As a poll finds that the work behind a 202 has failed.
        (replace(REFUSED, status_code=200), "reserve failed (200)"),
        (replace(REFUSED, category=Category.TRANSIENT, status_code=503), "reserve failed (503)"),
        (UNKNOWN, "nobody knows whether reserve was done"),
        (Completion(operation_id="op-1", status=OperationState.CANCELLED), "reserve was cancelled"),
    ],
)
def test_a_step_fails_in_one_of_a_few_ways(done: Completion, reason: str) -> None:
    assert a_saga((done, None))["reason"] == reason
