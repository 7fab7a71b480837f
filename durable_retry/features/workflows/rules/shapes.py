"""Many operations as one piece of work: batches and sagas.

A batch is up to 1,000 independent operations, submitted together, of which a limited number runs at once. An
item that is no valid operation is reported and dead-lettered by itself. No failure stops the other items;
whether the batch succeeded is decided at its end, by the number of failures that it tolerates.

A saga is steps in order, and compensations in reverse once a step failed.

    running ──every step succeeded──> succeeded
       └─a step failed──> compensating ──all undone──> compensated
                               └─a compensation failed──> compensation_failed
    stopped: a person ended the orchestration

What was compensated, or could not be, is run again on request: `features.workflows.rules.restart`.

A compensation that fails does not keep the earlier steps from being compensated. `SagaStep.effect` says what
is left of a step in the world. `Saga.next_action` is `Do`, `Undo` or `Over`; `Saga.after(action, completion)`
is the next value. References between steps are in `references`, and the operations inside are validated by
`rules.operations.request`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field

from durable_retry.base.documents import json_problems
from durable_retry.base.json_forms import JsonShape, is_none
from durable_retry.base.validation import Key, Strict
from durable_retry.features.workflows.rules.references import MissingResultError, Reference, filled
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.operations.operation import OperationInput

MOST_FILLED_BYTES: Final = 256 * 1024
"""What all results in one operation have: one that is referred to a thousand times makes 50 KB megabytes."""

MAX_ITEMS: Final = 1_000
MAX_CONCURRENCY: Final = 100


class BatchRequest(Strict):
    """The body of `POST /api/batches`.

    Attributes:
        items: Bodies of `POST /api/operations`; each is validated by itself.
        max_concurrency: The most operations of this batch that run at once.
        tolerated_failures: With more of them the batch counts as failed.
        key: Its idempotency key, which the header `Idempotency-Key` may give instead.
    """

    key: Key | None = None
    items: Annotated[list[Any], Field(min_length=1, max_length=MAX_ITEMS)]
    max_concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] = 10
    tolerated_failures: Annotated[int, Field(ge=0, le=MAX_ITEMS)] = 0


class ItemState(StrEnum):
    """The state of an item of a batch: what a running operation waits for, it says itself."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD_LETTERED = "dead_lettered"
    CANCELLED = "cancelled"


class BatchState(StrEnum):
    """The state of a batch."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress(JsonShape):
    """The items that have ended, those that run, and those that are next."""

    total: int  # number of items
    max_concurrency: int  # the most that run at once
    next_index: int = 0  # the first item that was not started
    # The items of each operation that runs; two items with one key are one operation.
    running: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether every item has ended."""
        return self.next_index >= self.total and not self.running

    @property
    def startable(self) -> list[int]:
        room = self.max_concurrency - len(self.running)
        return list(range(self.next_index, min(self.total, self.next_index + max(0, room))))

    def with_started(self, indices: Iterable[int], running: Mapping[int, str]) -> Self:
        """Return the progress after items were started; some of them ended at once and are not `running`."""
        ids = {operation_id: list(items) for operation_id, items in self.running.items()}
        for index, operation_id in running.items():
            items = ids.setdefault(operation_id, [])
            # An activity that ran twice reports its items twice.
            if index not in items:
                items.append(index)
        next_index = max((self.next_index, *(index + 1 for index in indices)))
        return replace(
            self, next_index=next_index, running={name: tuple(items) for name, items in ids.items()}
        )

    def without(self, operation_ids: Iterable[str]) -> Self:
        """Return the progress after operations ended; unknown ones change nothing."""
        ended = set(operation_ids)
        running = {name: items for name, items in self.running.items() if name not in ended}
        return replace(self, running=running)


def step_sizes(request: Mapping[str, Any]) -> list[int]:
    """Return how many ends and starts the request of a `batch_step` has; the answer has them, too."""
    return [len(request["ended"]), len(request["start"])]


class SagaState(StrEnum):
    """The state of a saga."""

    RUNNING = "running"
    COMPENSATING = "compensating"
    SUCCEEDED = "succeeded"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"
    STOPPED = "stopped"
    """A person ended its orchestration: what was done stands, and nothing more is done."""


class Effect(StrEnum):
    """What is left of a step in the world."""

    NONE = "none"
    STANDS = "stands"
    UNDONE = "undone"
    UNKNOWN = "unknown"


_WEIGHTS: Final = (Effect.NONE, Effect.UNDONE, Effect.STANDS, Effect.UNKNOWN)


type ConfirmedEffect = Literal["stands", "undone"]
"""What a person found to be left of a step, of the values of `Effect`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaStep(JsonShape):
    name: str  # unique in its saga
    operation: OperationInput  # the step's operation
    # The operation that undoes it; None when nothing can or needs to.
    compensation: OperationInput | None = None
    done: Completion | None = None  # how the operation ended; None before
    undone: Completion | None = None  # how the compensation ended; None before, and when it was not needed
    # JSON pointers to the parts of the operation's result that other operations of the saga refer to; None
    # when none does.
    wanted: tuple[str, ...] | None = None

    @property
    def stands(self) -> bool:
        """Whether the operation succeeded."""
        return self.done is not None and self.done.succeeded

    @property
    def may_have_acted(self) -> bool:
        """Whether the operation succeeded, or failed without a clear refusal."""
        return self.stands or (self.done is not None and self.done.may_have_acted)

    @property
    def effect(self) -> Effect:
        """What is left of it in the world, as far as known."""
        if self.done is None:
            return Effect.NONE
        if not self.may_have_acted:
            return Effect.NONE
        if self.undone is not None and self.undone.succeeded:
            return Effect.UNDONE
        return Effect.STANDS if self.stands and not self.undoing_is_unknown else Effect.UNKNOWN

    @property
    def undoing_is_unknown(self) -> bool:
        """Whether the compensation did not succeed, and may have done something nevertheless."""
        return self.undone is not None and self.undone.may_have_acted

    def ended(self, done: Completion | None, undone: Completion | None) -> Self:
        return replace(self, done=done, undone=undone)


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
class SagaRestart(JsonShape):
    """A restart of a saga.

    Attributes:
        number: Counts the restarts of the saga, from 1.
        runs: Names of the steps that ran again, in their order; the first is where it began.
        note: The person's; None when there is none.
        by: Who asked for it; None where that is not known.
        confirmed: What that person said of steps whose compensation was in doubt, by name; None where nothing
            was.
    """

    number: int
    requested_at: datetime
    runs: tuple[str, ...]
    note: str | None = None
    by: str | None = None
    confirmed: Annotated[Mapping[str, ConfirmedEffect] | None, Field(exclude_if=is_none)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saga(JsonShape):
    saga_id: str  # `saga-...`, also the orchestration's instance id
    steps: tuple[SagaStep, ...]
    created_at: datetime
    fingerprint: str = ""  # the fingerprint of the request; two submissions under one key are compared by it
    key: str | None = None  # the caller's
    # The restarts, the oldest first; None before the first.
    restarts: tuple[SagaRestart, ...] | None = None

    @property
    def failed_step(self) -> SagaStep | None:
        """The step that failed; None while none did."""
        return next((step for step in self.steps if step.done is not None and not step.done.succeeded), None)

    @property
    def failed(self) -> bool:
        return self.failed_step is not None

    @property
    def effect(self) -> Effect:
        """What is left of it in the world that should not be: the weightiest of its steps' effects."""
        # A step without a compensation may stand.
        effects = (step.effect for step in self.steps if step.compensation is not None or not step.stands)
        return max(effects, key=_WEIGHTS.index, default=Effect.NONE)

    @property
    def next_action(self) -> SagaAction:
        """The next action; it changes only when an operation ends."""
        if not self.failed:
            index = next((at for at, step in enumerate(self.steps) if step.done is None), None)
            return Over() if index is None else Do(index)
        to_undo = (at for at in reversed(range(len(self.steps))) if self._waits_to_be_undone(self.steps[at]))
        index = next(to_undo, None)
        return Over() if index is None else Undo(index)

    @property
    def state(self) -> SagaState:
        over = isinstance(self.next_action, Over)
        if not self.failed:
            return SagaState.SUCCEEDED if over else SagaState.RUNNING
        if not over:
            return SagaState.COMPENSATING
        undone = [step.undone for step in self.steps if step.undone is not None]
        all_undone = all(completion.succeeded for completion in undone)
        return SagaState.COMPENSATED if all_undone else SagaState.COMPENSATION_FAILED

    def _waits_to_be_undone(self, step: SagaStep) -> bool:
        return step.may_have_acted and step.compensation is not None and step.undone is None

    def operation_of(self, action: Do | Undo) -> OperationInput:
        """Return the operation to run for an action; ValueError where the step has no compensation."""
        step = self.steps[action.index]
        operation = step.operation if isinstance(action, Do) else step.compensation
        if operation is None:
            raise ValueError(f"step {step.name} has nothing that undoes it")
        return operation

    def filled_operation(self, action: Do | Undo) -> OperationInput:
        """Return the operation to run for an action, with its references replaced by results.

        Raises:
            MissingResultError: A result is not there, or too deep where it is needed, or all are too large.
        """
        operation = self.operation_of(action)
        request = None if operation.request is None else dict(operation.request)
        left_bytes = MOST_FILLED_BYTES

        def value_of(reference: Reference) -> Any:
            nonlocal left_bytes
            value = self._value_of_reference(reference)
            left_bytes -= len(json.dumps(value))
            if left_bytes < 0:
                raise MissingResultError(f"the results that it refers to have over {MOST_FILLED_BYTES} bytes")
            return value

        if request is not None and "json" in request:
            request["json"] = filled(request["json"], value_of, "request", "json")
        input_ = filled(operation.input, value_of, "input")
        if problems := json_problems({"request": request, "input": input_}):
            details = (f"{problem.pointer} {problem.detail}" for problem in problems)
            raise MissingResultError(f"with the results in their places, {'; '.join(details)}")
        return replace(operation, request=request, input=input_)

    def wanted_of(self, action: Do | Undo) -> tuple[str, ...]:
        """Return the pointers to the parts of an action's result that are needed later."""
        return (self.steps[action.index].wanted or ()) if isinstance(action, Do) else ()

    def _value_of_reference(self, reference: Reference) -> Any:
        step = next(step for step in self.steps if step.name == reference.step)
        values = {} if step.done is None else step.done.values or {}
        if reference.pointer not in values:
            where = reference.pointer or "all of it"
            missing = f"step {step.name} has no result at {where}, or too large a one"
            raise MissingResultError(
                f"{missing}, or one with the dependency's credential, which is not stored"
            )
        return values[reference.pointer]

    def after(self, action: Do | Undo, completion: Completion) -> Self:
        step = self.steps[action.index]
        changed = (
            replace(step, done=completion) if isinstance(action, Do) else replace(step, undone=completion)
        )
        return self.with_steps((*self.steps[: action.index], changed, *self.steps[action.index + 1 :]))

    def with_steps(self, steps: tuple[SagaStep, ...]) -> Self:
        return replace(self, steps=steps)
