"""Sagas under every fate of their parts: what is undone, in which order, and what is said of it.

The model is a world in which a part's operation has an effect or not. A crash is a saga that is written down
and read again between any two actions; a duplicate is an action whose completion arrives twice.
"""

from hypothesis import given
from hypothesis import strategies as st

from durable_retry.base.names import Category, OperationState
from durable_retry.features.workflows.rules.document import saga_document
from durable_retry.features.workflows.rules.shapes import (
    Do,
    Effect,
    Over,
    Saga,
    SagaAction,
    SagaState,
    SagaStep,
    Undo,
)
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.operations.operation import OperationInput
from tests.support.builders import NOON, an_operation

FATES = st.sampled_from(["succeeds", "refused", "exhausted", "ambiguous", "cancelled", "never_tried"])
_MAY_HAVE_ACTED = frozenset({"exhausted", "ambiguous", "cancelled"})


def part(name: str) -> OperationInput:
    return an_operation(operation_id=f"op-{name}", key=name)


def completion_of(fate: str, operation: OperationInput) -> Completion:
    status, category, attempts = {
        "succeeds": (OperationState.SUCCEEDED, None, 1),
        "refused": (OperationState.DEAD_LETTERED, Category.BUSINESS_RULE, 1),
        "exhausted": (OperationState.DEAD_LETTERED, Category.TRANSIENT, 5),
        "ambiguous": (OperationState.DEAD_LETTERED, Category.AMBIGUOUS, 1),
        "cancelled": (OperationState.CANCELLED, None, 2),
        "never_tried": (OperationState.DEAD_LETTERED, Category.DEADLINE_EXCEEDED, 0),
    }[fate]
    return Completion(
        operation_id=operation.operation_id,
        status=status,
        category=category,
        attempt_count=attempts,
        may_have_acted=fate in _MAY_HAVE_ACTED,
    )


@st.composite
def plans(draw: st.DrawFn) -> tuple[Saga, dict[str, str]]:
    """A saga and the fate of each of its operations."""
    count = draw(st.integers(1, 6))
    steps, fates = [], {}
    for index in range(count):
        undo = part(f"undo-{index}") if draw(st.booleans()) else None
        steps.append(SagaStep(name=f"s{index}", operation=part(f"do-{index}"), compensation=undo))
        fates[f"op-do-{index}"] = draw(FATES)
        fates[f"op-undo-{index}"] = draw(FATES)
    return Saga(saga_id="saga-1", steps=tuple(steps), created_at=NOON), fates


def played(saga: Saga, fates: dict[str, str], crashes: list[bool]) -> tuple[Saga, list[SagaAction]]:
    """Play a saga to its end, writing it down and reading it again where there is a crash."""
    actions: list[SagaAction] = []
    while not isinstance(action := saga.next_action, Over):
        actions.append(action)
        operation = saga.operation_of(action)
        saga = saga.after(action, completion_of(fates[operation.operation_id], operation))
        if crashes and crashes.pop():
            saga = Saga.from_json(saga.to_json())
    return saga, actions


@given(plans(), st.lists(st.booleans(), max_size=12))
def test_a_saga_ends_the_same_whatever_crashes(
    plan: tuple[Saga, dict[str, str]], crashes: list[bool]
) -> None:
    saga, fates = plan
    assert played(saga, fates, crashes) == played(saga, fates, [])


@given(plans())
def test_steps_run_in_order_up_to_the_first_that_fails(plan: tuple[Saga, dict[str, str]]) -> None:
    saga, fates = plan
    _, actions = played(saga, fates, [])
    done = [action.index for action in actions if isinstance(action, Do)]
    assert done == list(range(len(done)))
    failed = [index for index in done if fates[f"op-do-{index}"] != "succeeds"]
    assert failed == ([done[-1]] if failed else [])
    assert failed or len(done) == len(saga.steps)


@given(plans())
def test_exactly_the_steps_that_may_have_acted_are_undone_last_first(
    plan: tuple[Saga, dict[str, str]],
) -> None:
    saga, fates = plan
    ended, actions = played(saga, fates, [])
    undone = [action.index for action in actions if isinstance(action, Undo)]
    acted = {"succeeds", "exhausted", "ambiguous", "cancelled"}
    to_undo = [
        index
        for index, step in enumerate(ended.steps)
        if step.done is not None and fates[f"op-do-{index}"] in acted and step.compensation is not None
    ]
    assert undone == (list(reversed(to_undo)) if ended.failed else [])
    firsts = [isinstance(action, Undo) for action in actions]
    assert firsts == sorted(firsts), "nothing is done any more once undoing has begun"


@given(plans())
def test_what_it_says_is_what_happened(plan: tuple[Saga, dict[str, str]]) -> None:
    """Never `undone` or `none` where something may stand."""
    saga, fates = plan
    ended, actions = played(saga, fates, [])
    for index, step in enumerate(ended.steps):
        did = Do(index) in actions
        fate = fates[f"op-do-{index}"] if did else "never_tried"
        undo_fate = fates[f"op-undo-{index}"] if Undo(index) in actions else None
        match step.effect:
            case Effect.NONE:
                assert fate in {"refused", "never_tried"}
            case Effect.UNDONE:
                assert fate in {"succeeds", "exhausted", "ambiguous", "cancelled"}
                assert undo_fate == "succeeds"
            case Effect.STANDS:
                assert fate == "succeeds"
                assert undo_fate in {None, "refused", "never_tried"}
            case Effect.UNKNOWN:
                assert {fate, undo_fate} & {"exhausted", "ambiguous", "cancelled"}


@given(plans())
def test_its_status_is_that_of_its_parts(plan: tuple[Saga, dict[str, str]]) -> None:
    ended, _ = played(*plan, [])
    undone = [step.undone for step in ended.steps if step.undone is not None]
    if all(step.stands for step in ended.steps):
        assert ended.state is SagaState.SUCCEEDED
    elif all(completion.succeeded for completion in undone):
        assert ended.state is SagaState.COMPENSATED
    else:
        assert ended.state is SagaState.COMPENSATION_FAILED
    document = saga_document(ended, NOON)
    named = [*document.stands, *document.undone, *document.unknown]
    left = {step.name for step in ended.steps if step.effect is not Effect.NONE}
    assert sorted(named) == sorted(left)
