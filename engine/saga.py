"""Sagas: steps in order, and compensations in reverse once a step has ended badly.

    running ──every step succeeded──> succeeded
       └─a step ended otherwise──> compensating ──all undone──> compensated
                                        └─one could not be undone──> compensation_failed

A compensation that fails does not keep those before it from being tried.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from engine.ending import Ending
from engine.instants import from_rfc3339, to_rfc3339
from engine.operation import OperationInput
from engine.vocabulary import OperationState

MAX_STEPS: Final = 50


class SagaState(StrEnum):
    """Where a saga stands."""

    RUNNING = "running"
    COMPENSATING = "compensating"
    SUCCEEDED = "succeeded"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"
    STOPPED = "stopped"
    """Its orchestration was ended by hand: what was done stands, and nobody goes on."""


class Effect(StrEnum):
    """What of a step is left in the world."""

    NONE = "none"
    STANDS = "stands"
    UNDONE = "undone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step.

    Attributes:
        name: Unique in its saga.
        operation: What it does.
        compensation: What undoes it; None when nothing can or needs to.
        done: How the operation ended; None before.
        undone: How the compensation ended; None before, and when it was never needed.
    """

    name: str
    operation: OperationInput
    compensation: OperationInput | None = None
    done: Ending | None = None
    undone: Ending | None = None

    @property
    def stands(self) -> bool:
        """Whether it succeeded."""
        return self.done is not None and self.done.succeeded

    @property
    def effect(self) -> Effect:
        """What is left of it in the world, as far as known."""
        if self.done is None:
            return Effect.NONE
        if not self.done.succeeded:
            return Effect.UNKNOWN if self.done.may_have_acted else Effect.NONE
        if self.undone is None:
            return Effect.STANDS
        if self.undone.succeeded:
            return Effect.UNDONE
        return Effect.UNKNOWN if self.undone.may_have_acted else Effect.STANDS

    def ended(self, done: Ending | None, undone: Ending | None) -> Self:
        """Return the step with what came of its operations."""
        return replace(self, done=done, undone=undone)

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "name": self.name,
            "operation": self.operation.to_json(),
            "compensation": None if self.compensation is None else self.compensation.to_json(),
            "done": None if self.done is None else self.done.to_json(),
            "undone": None if self.undone is None else self.undone.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        compensation, done, undone = data["compensation"], data["done"], data["undone"]
        return cls(
            name=data["name"],
            operation=OperationInput.from_json(data["operation"]),
            compensation=None if compensation is None else OperationInput.from_json(compensation),
            done=None if done is None else Ending.from_json(done),
            undone=None if undone is None else Ending.from_json(undone),
        )


@dataclass(frozen=True, slots=True)
class Do:
    """Run the operation of a step."""

    index: int


@dataclass(frozen=True, slots=True)
class Undo:
    """Run the compensation of a step."""

    index: int


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing is left to do."""


type SagaAction = Do | Undo | Over


@dataclass(frozen=True, slots=True, kw_only=True)
class Saga:
    """A saga and how far it has come.

    Attributes:
        saga_id: `saga-...`, also the orchestration's instance id.
        steps: In order.
        created_at: When it was accepted.
        fingerprint: What makes two submissions under one key the same.
    """

    saga_id: str
    steps: tuple[Step, ...]
    created_at: datetime
    fingerprint: str = ""

    @property
    def failed(self) -> bool:
        """Whether a step has ended otherwise than succeeded."""
        return any(step.done is not None and not step.done.succeeded for step in self.steps)

    @property
    def next_action(self) -> SagaAction:
        """What to do next; the same for as long as nothing new has ended."""
        if not self.failed:
            index = next((at for at, step in enumerate(self.steps) if step.done is None), None)
            return Over() if index is None else Do(index)
        to_undo = (at for at in reversed(range(len(self.steps))) if _waits_to_be_undone(self.steps[at]))
        index = next(to_undo, None)
        return Over() if index is None else Undo(index)

    @property
    def state(self) -> SagaState:
        """Where it stands."""
        over = isinstance(self.next_action, Over)
        if not self.failed:
            return SagaState.SUCCEEDED if over else SagaState.RUNNING
        if not over:
            return SagaState.COMPENSATING
        undone = [step.undone for step in self.steps if step.undone is not None]
        all_undone = all(ending.succeeded for ending in undone)
        return SagaState.COMPENSATED if all_undone else SagaState.COMPENSATION_FAILED

    def operation_of(self, action: Do | Undo) -> OperationInput:
        """Return the operation to run for an action.

        Raises:
            ValueError: The step has no compensation.
        """
        step = self.steps[action.index]
        operation = step.operation if isinstance(action, Do) else step.compensation
        if operation is None:
            raise ValueError(f"step {step.name} has nothing that undoes it")
        return operation

    def after(self, action: Do | Undo, ending: Ending) -> Self:
        """Return the saga after an action's operation has ended."""
        step = self.steps[action.index]
        changed = replace(step, done=ending) if isinstance(action, Do) else replace(step, undone=ending)
        return self.with_steps((*self.steps[: action.index], changed, *self.steps[action.index + 1 :]))

    def with_steps(self, steps: tuple[Step, ...]) -> Self:
        """Return the saga with its steps in another state."""
        return replace(self, steps=steps)

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "saga_id": self.saga_id,
            "steps": [step.to_json() for step in self.steps],
            "created_at": to_rfc3339(self.created_at),
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            saga_id=data["saga_id"],
            steps=tuple(Step.from_json(step) for step in data["steps"]),
            created_at=from_rfc3339(data["created_at"]),
            fingerprint=data["fingerprint"],
        )


def saga_document(saga: Saga, updated_at: datetime) -> dict[str, Any]:
    """Return the document of `GET /api/sagas/{saga_id}`: what stands, what was undone, what is not known."""
    action = saga.next_action
    return {
        "saga_id": saga.saga_id,
        "status": saga.state.value,
        "steps": [_step_document(at, step, action) for at, step in enumerate(saga.steps)],
        "stands": _names(saga.steps, Effect.STANDS),
        "undone": _names(saga.steps, Effect.UNDONE),
        "unknown": _names(saga.steps, Effect.UNKNOWN),
        "created_at": to_rfc3339(saga.created_at),
        "updated_at": to_rfc3339(updated_at),
    }


def _step_document(index: int, step: Step, action: SagaAction) -> dict[str, Any]:
    compensation = None
    if step.compensation is not None:
        idle = OperationState.RUNNING.value if action == Undo(index) else None
        compensation = _part_document(step.compensation, step.undone, idle)
    idle = OperationState.RUNNING.value if action == Do(index) else OperationState.PENDING.value
    return {
        "index": index,
        "name": step.name,
        **_part_document(step.operation, step.done, idle),
        "effect": step.effect.value,
        "compensation": compensation,
    }


def _part_document(operation: OperationInput, ending: Ending | None, idle: str | None) -> dict[str, Any]:
    return {
        "operation_id": operation.operation_id,
        "key": operation.key,
        "status": idle if ending is None else ending.status.value,
        "error": None if ending is None else ending.error,
    }


def _waits_to_be_undone(step: Step) -> bool:
    return step.stands and step.compensation is not None and step.undone is None


def _names(steps: Iterable[Step], effect: Effect) -> list[str]:
    return [step.name for step in steps if step.effect is effect]
