from dataclasses import replace

import pytest

from durable_retry.base.names import Category, OperationState
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.workflows.rules.document import saga_document
from durable_retry.features.workflows.rules.restart import (
    RestartBody,
    answer_of,
    restarted,
    with_confirmed,
    without_effect,
)
from durable_retry.features.workflows.rules.shapes import Do, Effect, Over, Saga, SagaState, SagaStep
from durable_retry.rules.operations.completion import Completion
from tests.support.builders import NOON, an_operation
from tests.support.narrowing import existing

NAMES = ("reserve", "announce", "charge", "ship")


def end(category: Category | None = None) -> Completion:
    status = OperationState.SUCCEEDED if category is None else OperationState.DEAD_LETTERED
    return Completion(
        operation_id="op-x",
        status=status,
        category=category,
        attempt_count=1,
        may_have_acted=category is Category.AMBIGUOUS,
    )


DONE, REFUSED, AMBIGUOUS = end(), end(Category.BUSINESS_RULE), end(Category.AMBIGUOUS)


def a_saga(*ends: tuple[Completion | None, Completion | None]) -> Saga:
    steps = [
        SagaStep(
            name=name,
            operation=an_operation(operation_id=f"op-do-{name}", key=f"do-{name}"),
            compensation=an_operation(operation_id=f"op-undo-{name}", key=f"undo-{name}", undoes="saga-1"),
        ).ended(*each)
        for name, each in zip(NAMES, ends, strict=False)
    ]
    return Saga(saga_id="saga-1", steps=tuple(steps), created_at=NOON)


def again(saga: Saga, from_step: str | None = None) -> Saga:
    return restarted(saga, RestartBody(from_step=from_step), NOON, "ada")


def failed() -> Saga:
    return a_saga((DONE, DONE), (DONE, None), (REFUSED, None), (None, None))


def test_what_stands_is_kept_and_what_does_not_runs_before_the_step_that_failed() -> None:
    saga = again(failed())
    assert (answer_of(saga).runs, answer_of(saga).keeps) == (("reserve", "charge", "ship"), ("announce",))
    assert answer_of(saga).from_step == "reserve"
    assert saga.steps[1] == failed().steps[1]
    assert (saga.state, saga.next_action) == (SagaState.RUNNING, Do(0))
    assert Saga.from_json(saga.to_json()) == saga


def test_what_runs_again_has_a_new_id_and_a_new_key_and_what_never_began_its_first() -> None:
    reserve, _, charge, ship = again(failed()).steps
    assert reserve.compensation is not None
    parts = (reserve.operation, reserve.compensation, charge.operation)
    assert [part.sent_key for part in parts] == [
        "saga-1.restart-1.do.reserve",
        "saga-1.restart-1.undo.reserve",
        "saga-1.restart-1.do.charge",
    ]
    assert len({part.operation_id for part in parts}) == 3
    assert all(part.operation_id.startswith("op-") for part in parts)
    assert reserve.compensation.undoes == "saga-1"
    assert (charge.compensation, ship) == (failed().steps[2].compensation, failed().steps[3])


def test_what_may_have_taken_effect_keeps_its_key_at_the_dependency_through_every_restart() -> None:
    saga = again(a_saga((AMBIGUOUS, None)))
    assert saga.steps[0].operation.operation_id != "op-do-reserve"
    assert saga.steps[0].operation.sent_key == "do-reserve"
    second = again(saga.with_steps((saga.steps[0].ended(AMBIGUOUS, None),)))
    assert second.steps[0].operation.sent_key == "do-reserve"
    assert second.steps[0].operation.key == "saga-1.restart-2.do.reserve"
    assert [each.number for each in second.restarts or ()] == [1, 2]
    assert [each.steps[0].operation.acted_before for each in (saga, second)] == [True, True]


def test_a_chosen_step_and_those_behind_it_run_again_even_if_they_stand_under_the_same_key() -> None:
    saga = again(failed(), from_step="announce")
    assert answer_of(saga).runs == ("reserve", "announce", "charge", "ship")
    assert saga.steps[1].operation.sent_key == "do-announce"
    assert saga.steps[1].operation.operation_id != "op-do-announce"


def test_a_compensation_that_was_refused_is_a_new_one_when_its_step_is_kept() -> None:
    (reserve, _) = again(a_saga((DONE, REFUSED), (REFUSED, None))).steps
    assert (reserve.done, reserve.undone) == (DONE, None)
    assert existing(reserve.compensation).key == "saga-1.restart-1.undo.reserve"


def test_a_step_without_compensation_runs_again_without_one() -> None:
    saga = failed()
    bare = saga.with_steps((replace(saga.steps[0], compensation=None, done=REFUSED, undone=None),))
    assert again(bare).steps[0].compensation is None


def test_a_saga_whose_steps_all_stand_is_over_at_once() -> None:
    saga = again(a_saga((DONE, None)))
    assert (answer_of(saga).from_step, saga.next_action, saga.state) == (None, Over(), SagaState.SUCCEEDED)


def test_an_unknown_step_is_refused_with_the_names_of_the_steps() -> None:
    with pytest.raises(InvalidInputError) as refused:
        again(failed(), from_step="pay")
    (problem,) = refused.value.problems
    assert problem.pointer == "/from_step"
    assert "reserve, announce, charge, ship" in problem.detail


def test_the_document_has_the_restarts_and_none_before_the_first() -> None:
    assert "restarts" not in saga_document(failed(), NOON).to_json()
    (restart,) = saga_document(again(failed()), NOON).to_json()["restarts"]
    assert (restart["number"], restart["by"], restart["runs"]) == (1, "ada", ["reserve", "charge", "ship"])


def in_doubt() -> Saga:
    cancelled = replace(end(), status=OperationState.CANCELLED, may_have_acted=True)
    return a_saga((DONE, cancelled), (DONE, DONE), (REFUSED, None))


def test_a_step_that_a_person_found_undone_runs_with_new_keys() -> None:
    assert in_doubt().steps[0].undoing_is_unknown
    saga = restarted(
        with_confirmed(in_doubt(), {"reserve": "undone"}),
        RestartBody(confirmed={"reserve": "undone"}),
        NOON,
        "ada",
    )
    assert answer_of(saga).runs == ("reserve", "announce", "charge")
    assert saga.steps[0].operation.sent_key == "saga-1.restart-1.do.reserve"
    assert saga.restarts is not None
    assert (saga.restarts[0].confirmed, saga.restarts[0].by) == ({"reserve": "undone"}, "ada")
    assert Saga.from_json(saga.to_json()) == saga


def test_a_step_that_a_person_found_standing_is_kept_and_undone_anew_if_it_has_to_be() -> None:
    saga = again(with_confirmed(in_doubt(), {"reserve": "stands"}))
    assert answer_of(saga).keeps == ("reserve",)
    kept = saga.steps[0]
    assert kept.operation.operation_id == "op-do-reserve"
    assert existing(kept.compensation).operation_id != "op-undo-reserve"


def test_only_what_is_in_doubt_is_confirmed() -> None:
    with pytest.raises(InvalidInputError) as refused:
        with_confirmed(in_doubt(), {"announce": "undone", "paint": "stands", "reserve": "stands"})
    detail = "has no compensation in doubt; in doubt: reserve"
    assert [(each.pointer, each.detail) for each in refused.value.problems] == [
        ("/confirmed/announce", detail),
        ("/confirmed/paint", detail),
    ]
    with pytest.raises(InvalidInputError, match="in doubt: none"):
        with_confirmed(failed(), {"ship": "undone"})


def test_what_runs_again_with_a_new_key_has_not_acted_before() -> None:
    saga = again(a_saga((DONE, DONE), (REFUSED, None)))
    assert [step.operation.acted_before for step in saga.steps] == [None, None]


def test_a_compensation_of_which_nothing_is_left_leaves_a_step_that_stands() -> None:
    reserve = failed().steps[0]
    assert reserve.undone is not None
    step = reserve.ended(DONE, without_effect(reserve.undone))
    assert (step.effect, step.undoing_is_unknown) == (Effect.STANDS, False)
