"""What people and callers see of batches and sagas."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, Literal

from pydantic import Field

from durable_retry.base.answers import Answer, Instant, Unreadable, is_empty, left_out
from durable_retry.base.json_forms import is_none
from durable_retry.base.names import Category, OperationState
from durable_retry.base.text import counted
from durable_retry.features.workflows.rules.shapes import (
    BatchState,
    Do,
    Effect,
    ItemState,
    Over,
    Saga,
    SagaAction,
    SagaRestart,
    SagaState,
    SagaStep,
    Undo,
)
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.classify import is_2xx


class BatchCounts(Answer):
    """Items by status."""

    pending: int
    running: int
    succeeded: int
    dead_lettered: int
    cancelled: int
    total: int


class BatchItem(Answer):
    """One item of a batch."""

    index: int
    key: str | None = None
    operation_id: str | None = None
    status: ItemState = Field(
        default=ItemState.PENDING,
        description="`running` until its operation has ended, which says itself what it waits for. "
        "A replay changes nothing of it.",
    )
    error: str | None = None
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)


class BatchSummary(Answer):
    """Where a batch stands, without its items."""

    batch_id: str
    key: str | None = Field(default=None, description="The caller's; null without one.")
    status: BatchState
    max_concurrency: int
    tolerated_failures: int
    counts: BatchCounts
    created_at: Instant
    finished_at: Instant | None
    reason: str | None = left_out("Why it counts as failed. Left out unless it does.")
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)


class BatchDocument(BatchSummary):
    """Where a batch stands."""

    items: tuple[BatchItem, ...]


def counts_of(statuses: Iterable[ItemState]) -> BatchCounts:
    listed = list(statuses)
    return BatchCounts(total=len(listed), **{state.value: listed.count(state) for state in ItemState})


def why_batch_failed(counts: BatchCounts, tolerated_failures: int) -> str:
    """Return why a batch counts as failed, for a person."""
    cancelled = f"{counts.cancelled} cancelled" if counts.cancelled else ""
    dead = counted(counts.dead_lettered, "dead letter") if counts.dead_lettered else ""
    failed = " and ".join(filter(None, (dead, cancelled)))
    tolerated = f"{tolerated_failures} tolerated" if tolerated_failures else "none is tolerated"
    return f"{failed} of {counted(counts.total, 'item')}; {tolerated}"


def batch_state_of(counts: BatchCounts, tolerated_failures: int) -> BatchState:
    failures = counts.dead_lettered + counts.cancelled
    if counts.succeeded + failures < counts.total:
        return BatchState.RUNNING
    return BatchState.SUCCEEDED if failures <= tolerated_failures else BatchState.FAILED


type PartState = OperationState | Literal["not_run"]
"""The state of an operation of a saga; `not_run` is that of a step behind one that failed."""


class SagaPart(Answer):
    """An operation of a saga; `status` is null while a compensation is not needed."""

    operation_id: str
    key: str
    status: PartState | None
    error: str | None
    dead_letter_id: str | None = left_out("Left out where it did not end as one.")


class SagaStepDocument(SagaPart):
    """One step of a saga, and what of it is left in the world."""

    index: int
    name: str
    effect: Effect
    compensation: SagaPart | None


class SagaDocument(Answer):
    """Where a saga stands: the names of steps that stand, were undone, or are in doubt."""

    saga_id: str
    key: str | None = left_out("The caller's; left out without one.")
    status: SagaState
    error: str | None = left_out("That of the step that failed. Left out while none did.")
    reason: str | None = left_out(
        "The same in words, such as `charge was refused (402)`. Left out while no step failed."
    )
    effect: Effect | None = left_out(
        "What is left of one whose step failed, once it is over: `undone`, `none` (nothing "
        "was to be undone), `unknown`, or `stands` (a compensation failed). Left out otherwise."
    )
    steps: tuple[SagaStepDocument, ...] = ()
    stands: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    created_at: Instant
    updated_at: Instant
    restarts: tuple[SagaRestart, ...] = Field(
        default=(), exclude_if=is_empty, description="Its restarts, the oldest first. Left out without any."
    )
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)


def saga_document(saga: Saga, updated_at: datetime) -> SagaDocument:
    """Return the document of `GET /api/sagas/{saga_id}`: what stands, what was undone, what is unknown."""
    action, failed = saga.next_action, saga.failed_step
    done = None if failed is None else failed.done
    waiting: PartState = OperationState.PENDING if done is None else "not_run"
    return SagaDocument.taken_from(
        saga,
        status=saga.state,
        error=None if done is None else done.error,
        reason=None if failed is None or done is None else _reason_of(failed.name, done),
        effect=saga.effect if done is not None and isinstance(action, Over) else None,
        steps=tuple(_step_document(at, step, action, waiting) for at, step in enumerate(saga.steps)),
        stands=_names_with_effect(saga.steps, Effect.STANDS),
        undone=_names_with_effect(saga.steps, Effect.UNDONE),
        unknown=_names_with_effect(saga.steps, Effect.UNKNOWN),
        updated_at=updated_at,
        restarts=saga.restarts or (),
    )


_REFUSED: Final = frozenset(
    {Category.MALFORMED, Category.UNAUTHORIZED, Category.NOT_FOUND, Category.BUSINESS_RULE}
)


def _reason_of(name: str, done: Completion) -> str:
    """Return in words how a step failed: `charge was refused (402)`."""
    code = "" if done.status_code is None else f" ({done.status_code})"
    # What was accepted and failed later, as a poll may find, answers with a success.
    is_refused = done.category in _REFUSED and not (done.status_code and is_2xx(done.status_code))
    if done.status is OperationState.CANCELLED:
        return f"{name} was cancelled"
    if is_refused:
        return f"{name} was refused{code}"
    if done.category is Category.AMBIGUOUS:
        return f"nobody knows whether {name} was done{code}"
    return f"{name} failed{code}"


def _step_document(index: int, step: SagaStep, action: SagaAction, waiting: PartState) -> SagaStepDocument:
    compensation = None
    if step.compensation is not None:
        idle = OperationState.RUNNING if action == Undo(index) else None
        compensation = _part_document(step.compensation, step.undone, idle)
    idle_step = OperationState.RUNNING if action == Do(index) else waiting
    return SagaStepDocument(
        **dict(_part_document(step.operation, step.done, idle_step)),
        index=index,
        name=step.name,
        effect=step.effect,
        compensation=compensation,
    )


def _part_document(
    operation: OperationInput, completion: Completion | None, idle: PartState | None
) -> SagaPart:
    return SagaPart(
        operation_id=operation.operation_id,
        key=operation.key,
        status=idle if completion is None else completion.status,
        error=None if completion is None else completion.error,
        dead_letter_id=None if completion is None else completion.dead_letter_id,
    )


def _names_with_effect(steps: Iterable[SagaStep], effect: Effect) -> tuple[str, ...]:
    return tuple(step.name for step in steps if step.effect is effect)
