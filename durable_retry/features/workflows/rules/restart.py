"""A saga that was compensated is run again: which of its steps, and under which names and keys.

    what is left of a step     in a restart it is                    the key that its dependency gets
    stands                     kept, with its result                 none: nothing is sent
    stands, at or behind       run again                             the same
      a step that was chosen
    unknown                    run again                             the same: it may have taken effect
    undone                     run again                             a new one: the old one stands for
                                                                     what was undone
    none                       run again                             a new one: the old one may stand for
                                                                     a refusal
    never begun                run                                   its first

What runs again has a new id, since the engine would answer for the old one. So has a compensation that ran.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated

from pydantic import Field

from durable_retry.base.answers import Answer
from durable_retry.base.names import OperationState
from durable_retry.base.validation import InvalidInputError, Problem, Strict, pointer_of, with_example
from durable_retry.features.workflows.rules.references import SAGA_SOURCE
from durable_retry.features.workflows.rules.shapes import (
    ConfirmedEffect,
    Effect,
    Saga,
    SagaRestart,
    SagaState,
    SagaStep,
)
from durable_retry.rules.dead_letters.record import NoteText
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.operations.keys import ScopedKey, operation_id_for, visible
from durable_retry.rules.operations.operation import OperationInput

RESTARTABLE = frozenset({SagaState.COMPENSATED, SagaState.COMPENSATION_FAILED})
"""The states in which a saga can be restarted."""


class RestartBody(Strict):
    """The body of a saga's restart."""

    model_config = with_example(from_step="charge", note="The supplier mended its API.")

    from_step: Annotated[
        str | None,
        Field(
            max_length=200,
            description="This step and those behind it are run again, and those before it that do not stand. "
            "Left out, every step that stands is kept: the run goes on where the saga failed.",
        ),
    ] = None
    note: NoteText | None = Field(default=None, description="Why, for whoever looks later.")
    confirmed: dict[str, ConfirmedEffect] | None = Field(
        default=None,
        description="What you found of steps whose compensation did not succeed and may have taken "
        "effect, by name: `undone`, or `stands` if the compensation did nothing. It is kept with the "
        "restart.",
    )


class RestartedSaga(Answer):
    """A saga that was restarted: what runs again, and what is kept."""

    saga_id: str
    restart: int = Field(description="Counts the restarts of the saga, from 1.")
    from_step: str | None = Field(description="The first step that runs; null when all of them stand.")
    runs: tuple[str, ...] = Field(description="Names of the steps that run, in their order.")
    keeps: tuple[str, ...] = Field(description="Names of the steps that stand and do not run.")


def with_confirmed(saga: Saga, confirmed: Mapping[str, ConfirmedEffect]) -> Saga:
    """Return a saga with what a person found of steps whose compensation is in doubt.

    Raises:
        InvalidInputError: A named step has no compensation in doubt, or there is no such step.
    """
    doubtful = [step.name for step in saga.steps if step.undoing_is_unknown]
    detail = f"has no compensation in doubt; in doubt: {', '.join(doubtful) or 'none'}"
    if problems := [
        Problem(pointer_of("confirmed", name), detail) for name in confirmed if name not in doubtful
    ]:
        raise InvalidInputError(problems)
    return saga.with_steps(tuple(_with_found(step, confirmed.get(step.name)) for step in saga.steps))


def _with_found(step: SagaStep, effect: ConfirmedEffect | None) -> SagaStep:
    if effect is None or step.undone is None:
        return step
    undone = without_effect(step.undone)
    if effect == "undone":
        undone = replace(undone, status=OperationState.SUCCEEDED, error=None)
    return replace(step, undone=undone)


def without_effect(end: Completion) -> Completion:
    """Return the end of a compensation of which nothing is left: it ran, so the next one has a new name."""
    return replace(end, status=OperationState.CANCELLED, category=None, may_have_acted=False)


def restarted(saga: Saga, body: RestartBody, now: datetime, by: str | None) -> Saga:
    """Return a saga to run again, with its restart noted.

    Args:
        saga: It has ended in one of `RESTARTABLE`; its steps have the ends that their operations have today.
        by: Who asks; None where that is not known.

    Raises:
        InvalidInputError: It has no step of this name.
    """
    names = [step.name for step in saga.steps]
    if body.from_step is not None and body.from_step not in names:
        detail = f"is no step of this saga: there are {', '.join(names)}"
        raise InvalidInputError([Problem("/from_step", detail)])
    first = len(names) if body.from_step is None else names.index(body.from_step)
    before = saga.restarts or ()
    runs = frozenset(_steps_to_run(saga, first))
    number = len(before) + 1
    restart = SagaRestart(
        number=number,
        requested_at=now,
        runs=tuple(step.name for index, step in enumerate(saga.steps) if index in runs),
        note=body.note,
        by=by,
        confirmed=body.confirmed,
    )
    steps = tuple(
        (_run_again if index in runs else _keep)(step, f"{saga.saga_id}.restart-{number}")
        for index, step in enumerate(saga.steps)
    )
    return replace(saga, steps=steps, restarts=(*before, restart))


def _steps_to_run(saga: Saga, first: int) -> Iterator[int]:
    for index, step in enumerate(saga.steps):
        if index >= first or step.effect is not Effect.STANDS:
            yield index


def _keep(step: SagaStep, prefix: str) -> SagaStep:
    return replace(step, compensation=_next_compensation(step, prefix), undone=None)


def _run_again(step: SagaStep, prefix: str) -> SagaStep:
    operation = step.operation
    if step.done is not None:
        keeps_key = step.effect in {Effect.UNKNOWN, Effect.STANDS}
        key = operation.sent_key if keeps_key else None
        operation = _renamed(operation, f"{prefix}.do.{step.name}", downstream_key=key)
        operation = replace(operation, acted_before=keeps_key or None)
    compensation = _next_compensation(step, prefix)
    return replace(step, operation=operation, compensation=compensation, done=None, undone=None)


def _next_compensation(step: SagaStep, prefix: str) -> OperationInput | None:
    if step.compensation is None or step.undone is None:
        return step.compensation
    return _renamed(step.compensation, f"{prefix}.undo.{step.name}", downstream_key=None)


def _renamed(operation: OperationInput, name: str, *, downstream_key: str | None) -> OperationInput:
    own = ScopedKey(f"source:{SAGA_SOURCE}", visible(name))
    operation_id = operation_id_for(own.scope, own.key)
    # As a replay: it begins at once, and no later operation takes its place.
    at_once = replace(operation, start_at=None, parts=None)
    return replace(at_once, operation_id=operation_id, key=own.key, downstream_key=downstream_key)


def answer_of(saga: Saga) -> RestartedSaga:
    latest = (saga.restarts or ())[-1]
    return RestartedSaga(
        saga_id=saga.saga_id,
        restart=latest.number,
        from_step=next(iter(latest.runs), None),
        runs=latest.runs,
        keeps=tuple(step.name for step in saga.steps if step.name not in latest.runs),
    )
