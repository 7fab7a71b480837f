from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from durable_retry.base.documents import MAX_DEPTH
from durable_retry.base.names import Category, OperationState
from durable_retry.features.workflows.rules.document import SagaDocument
from durable_retry.features.workflows.rules.references import MissingResultError
from durable_retry.features.workflows.rules.shapes import (
    BatchProgress,
    Do,
    Effect,
    Saga,
    SagaState,
    SagaStep,
    Undo,
)
from durable_retry.rules.operations.completion import MAX_VALUES_CHARS, Completion
from tests.support.builders import NOON, an_operation
from tests.support.narrowing import existing


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
    operation_id="op-1",
    status=OperationState.DEAD_LETTERED,
    category=Category.AMBIGUOUS,
    attempt_count=1,
    may_have_acted=True,
)


def a_step(**more: Any) -> SagaStep:
    return SagaStep(name="charge", operation=an_operation(), **more)


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


@pytest.mark.parametrize(("done", "action"), [(UNKNOWN, Undo(1)), (REFUSED, Undo(0))])
def test_a_failed_step_that_may_have_acted_is_undone_first(done: Completion, action: Undo) -> None:
    first = a_step(compensation=an_operation(), done=SUCCEEDED)
    steps = (first, a_step(compensation=an_operation(), done=done))
    assert Saga(saga_id="saga-1", steps=steps, created_at=NOON).next_action == action


def test_a_step_without_compensation_has_nothing_to_undo_it() -> None:
    saga = Saga(saga_id="saga-1", steps=(a_step(),), created_at=NOON)
    assert saga.operation_of(Do(0)) == an_operation()
    with pytest.raises(ValueError, match="nothing that undoes it"):
        saga.operation_of(Undo(0))


def test_a_step_takes_how_its_operations_ended() -> None:
    assert a_step().ended(SUCCEEDED, REFUSED) == a_step(done=SUCCEEDED, undone=REFUSED)


def a_referring_saga(values: dict[str, Any] | None) -> Saga:
    done = replace(SUCCEEDED, values=values)
    call = {"method": "POST", "path": "", "query": {}, "headers": {}}
    first = SagaStep(name="charge", operation=an_operation(), done=done, wanted=("/json/id",))
    second = an_operation(
        request=call | {"json": {"id": {"$result": "charge#/json/id"}}},
        input=[{"$result": "charge#/json/id"}],
    )
    third = an_operation(request=call)
    return Saga(
        saga_id="saga-1",
        steps=(first, SagaStep(name="mail", operation=second), SagaStep(name="log", operation=third)),
        created_at=NOON,
    )


def test_a_step_gets_the_results_that_it_refers_to() -> None:
    saga = a_referring_saga({"/json/id": "ch-1"})
    operation = saga.filled_operation(Do(1))
    assert (existing(operation.request)["json"], operation.input) == ({"id": "ch-1"}, ["ch-1"])
    assert saga.filled_operation(Do(2)) == saga.steps[2].operation
    assert (saga.wanted_of(Do(0)), saga.wanted_of(Undo(0)), saga.wanted_of(Do(1))) == (("/json/id",), (), ())
    assert Saga.from_json(saga.to_json()) == saga


@pytest.mark.parametrize("values", [None, {"/json": 1}])
def test_a_result_that_is_not_there_is_named(values: dict[str, Any] | None) -> None:
    saga = a_referring_saga(values)
    with pytest.raises(MissingResultError, match=r"^/request/json/id: step charge has no result at /json/id"):
        saga.filled_operation(Do(1))
    unfinished = saga.with_steps((replace(saga.steps[0], done=None), *saga.steps[1:]))
    with pytest.raises(MissingResultError):
        unfinished.filled_operation(Do(1))


def test_a_result_that_is_referred_to_a_thousand_times_makes_no_operation_of_megabytes() -> None:
    saga = a_referring_saga({"/json/id": "x" * 16_000})
    reference = {"$result": "charge#/json/id"}
    for count, is_refused in ((16, False), (17, True)):
        step = replace(
            saga.steps[1], operation=replace(saga.steps[1].operation, input=[reference] * (count - 1))
        )
        referring = saga.with_steps((saga.steps[0], step, saga.steps[2]))
        with pytest.raises(MissingResultError, match="over 262144 bytes") if is_refused else nullcontext():
            referring.filled_operation(Do(1))


def test_an_operation_that_a_result_makes_too_deep_is_refused_where_it_is() -> None:
    deep: Any = []
    for _ in range(MAX_DEPTH - 3):
        deep = [deep]
    saga = a_referring_saga({"/json/id": deep[0]})
    assert saga.filled_operation(Do(1)).input == [deep[0]]
    saga = a_referring_saga({"/json/id": deep})
    with pytest.raises(MissingResultError, match=r"/request/json/id/0.* nests deeper than 48 levels"):
        saga.filled_operation(Do(1))


def test_an_end_has_the_parts_of_the_result_that_are_wanted() -> None:
    document = {
        "operation_id": "op-1",
        "status": "succeeded",
        "attempt_count": 1,
        "attempts": [],
        "dead_letter": None,
        "result": {"json": {"id": 7, "large": "x" * MAX_VALUES_CHARS}},
    }
    ended = existing(Completion.of(document, ["/json/id", "/json/large", "/json/none"]))
    assert ended.values == {"/json/id": 7}
    document["result"] = {"body": '{"id": ', "truncated": True, "values": {"/json/id": 8}}
    cut = existing(Completion.of(document, ["/json/id", "/truncated", "/json/none"]))
    assert cut.values == {"/json/id": 8, "/truncated": True}
    assert "values" not in existing(Completion.of(document)).to_json()


def test_the_document_of_a_saga_is_one_or_an_error() -> None:
    instants = {"created_at": "2026-11-21T09:00:00Z", "updated_at": "2026-11-21T09:00:00Z"}
    document = {"saga_id": "saga-1", "status": "running", "steps": [], **instants}
    assert SagaDocument.read(document).to_json().items() >= document.items()
    with pytest.raises(ValueError, match="steps"):
        SagaDocument.read(document | {"steps": "none"})
