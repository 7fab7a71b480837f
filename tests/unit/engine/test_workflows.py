"""The rules of batches and sagas."""

from typing import Any

import pytest

from durable_retry.engine.base.names import Category, OperationState
from durable_retry.engine.base.validation import InvalidInputError, validated
from durable_retry.engine.operations.completion import Completion
from durable_retry.engine.workflows import BatchProgress, Do, Effect, Saga, SagaRequest, SagaState, Step, Undo
from tests.support.builders import NOON, an_operation


def test_an_item_that_is_started_twice_runs_once() -> None:
    progress = BatchProgress(total=3, max_concurrency=2)
    once = progress.with_started([0, 1], {0: "op-a", 1: "op-a"})
    assert once.running == {"op-a": (0, 1)}
    assert once.with_started([1], {1: "op-a"}) == once


SUCCEEDED = Completion(operation_id="op-1", status=OperationState.SUCCEEDED, attempt_count=1)
REFUSED = Completion(
    operation_id="op-1",
    status=OperationState.DEAD_LETTERED,
    category=Category.BUSINESS_RULE,
    attempt_count=1,
)
UNKNOWN = Completion(
    operation_id="op-1", status=OperationState.DEAD_LETTERED, category=Category.AMBIGUOUS, attempt_count=1
)


def a_step(**more: Any) -> Step:
    return Step(name="charge", operation=an_operation(), **more)


@pytest.mark.parametrize(
    ("done", "undone", "effect"),
    [
        (None, None, Effect.NONE),
        (REFUSED, None, Effect.NONE),
        (UNKNOWN, None, Effect.UNKNOWN),
        (SUCCEEDED, None, Effect.STANDS),
        (SUCCEEDED, SUCCEEDED, Effect.UNDONE),
        (SUCCEEDED, REFUSED, Effect.STANDS),
        (SUCCEEDED, UNKNOWN, Effect.UNKNOWN),
        (UNKNOWN, SUCCEEDED, Effect.UNDONE),
        (UNKNOWN, REFUSED, Effect.UNKNOWN),
    ],
)
def test_what_is_left_of_a_step_follows_from_how_its_operations_ended(
    done: Completion | None, undone: Completion | None, effect: Effect
) -> None:
    assert a_step(done=done, undone=undone).effect is effect


@pytest.mark.parametrize(
    ("first", "second", "state"),
    [
        ({}, {}, SagaState.RUNNING),
        ({"done": SUCCEEDED}, {"done": SUCCEEDED}, SagaState.SUCCEEDED),
        ({"done": SUCCEEDED}, {"done": REFUSED}, SagaState.COMPENSATING),
        ({"done": SUCCEEDED, "undone": SUCCEEDED}, {"done": REFUSED}, SagaState.COMPENSATED),
        ({"done": SUCCEEDED, "undone": REFUSED}, {"done": REFUSED}, SagaState.COMPENSATION_FAILED),
    ],
)
def test_a_saga_stands_where_its_steps_do(
    first: dict[str, Any], second: dict[str, Any], state: SagaState
) -> None:
    steps = (a_step(compensation=an_operation(), **first), a_step(**second))
    assert Saga(saga_id="saga-1", steps=steps, created_at=NOON).state is state


@pytest.mark.parametrize(
    ("done", "undoes_unknown", "action"),
    [(UNKNOWN, True, Undo(1)), (UNKNOWN, False, Undo(0)), (REFUSED, True, Undo(0))],
)
def test_a_failed_step_that_may_have_acted_is_undone_first(
    *, done: Completion, undoes_unknown: bool, action: Undo
) -> None:
    """Sagas that were accepted before it did so go on as they began: their histories are replayed."""
    first = a_step(compensation=an_operation(), done=SUCCEEDED)
    steps = (first, a_step(compensation=an_operation(), done=done))
    saga = Saga(saga_id="saga-1", steps=steps, created_at=NOON, undoes_unknown=undoes_unknown)
    assert saga.next_action == action
    older = {name: value for name, value in saga.to_json().items() if name != "undoes_unknown"}
    assert Saga.from_json(older).next_action == Undo(0)


def test_a_step_without_compensation_has_nothing_to_undo_it() -> None:
    saga = Saga(saga_id="saga-1", steps=(a_step(),), created_at=NOON)
    assert saga.operation_of(Do(0)) == an_operation()
    with pytest.raises(ValueError, match="nothing that undoes it"):
        saga.operation_of(Undo(0))


def test_two_steps_cannot_have_one_name() -> None:
    step = {"name": "charge", "operation": {}}
    assert len(validated(SagaRequest, {"steps": [step, {**step, "name": "ship"}]}).steps) == 2
    with pytest.raises(InvalidInputError) as caught:
        validated(SagaRequest, {"steps": [step, step]})
    assert ["two steps have one name" in problem.detail for problem in caught.value.problems] == [True]


def test_a_step_takes_how_its_operations_ended() -> None:
    assert a_step().ended(SUCCEEDED, REFUSED) == a_step(done=SUCCEEDED, undone=REFUSED)
