"""The operations of batches and sagas: resolved when the batch or saga is accepted, started one by one later.

All are parsed, named, validated and started like any other operation.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from durable_retry import clock
from durable_retry.engine.base.foreign import json_problems, size_problem
from durable_retry.engine.base.names import Category, DeadLetterReason, OperationState
from durable_retry.engine.base.trace_context import TraceContext
from durable_retry.engine.base.validation import (
    InvalidInputError,
    Key,
    Problem,
    Strict,
    pointer_of,
    validated,
)
from durable_retry.engine.config.dependency import UnknownTargetError
from durable_retry.engine.operations.completion import Completion
from durable_retry.engine.operations.keys import ScopedKey
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.submission import Naming, ParsedEnvelope, read_operation
from durable_retry.engine.workflows.references import (
    SagaRequest,
    StepRequest,
    references_in_operation,
    references_of,
)
from durable_retry.engine.workflows.shapes import BatchRequest, SagaStep
from durable_retry.runtime.concurrency import map_bounded
from durable_retry.services.operations.submit import KeyReused, Replayed, Started, submit
from durable_retry.settings.configuration import app_settings, targets
from durable_retry.stores.dead_letters.records import keep_message, keep_operation
from durable_retry.stores.operations.results import whole_result
from durable_retry.stores.task_hub import TaskHub
from durable_retry.stores.workflows import Item, close_batch, find_batch, note_ended, note_running, read_item


@dataclass(frozen=True, slots=True)
class WorkflowRequest:
    """A batch or a saga about to be accepted.

    Attributes:
        id: Derived from the key, and so the same for the same key on every machine.
        source: `batch` or `saga`.
        tenant: The tenant of the caller; "" when there is one tenant.
        key: The caller's; None without one.
    """

    id: str
    source: str
    tenant: str
    trace: TraceContext | None = None
    key: str | None = None

    def resolve(
        self, document: Any, place: str, now: datetime, unknown: Collection[str] = ()
    ) -> OperationInput:
        """Return the operation of an item.

        Args:
            document: A body of `POST /api/operations`; without a key in it, the key is derived from the
                workflow's id and the place.
            unknown: JSON pointers of values that are known later.

        Raises:
            UnknownTargetError: Its dependency or handler is not configured.
            InvalidInputError: With everything else that is wrong with it.
        """
        naming = Naming(tenant=self.tenant, own=ScopedKey(f"source:{self.source}", f"{self.id}.{place}"))
        return read_operation(
            ParsedEnvelope(document),
            naming,
            targets(),
            source=self.source,
            now=now,
            trace=self.trace,
            unknown=unknown,
        )


def batch_items(workflow: WorkflowRequest, request: BatchRequest, now: datetime) -> list[Item]:
    """Validate the items of a batch; one that cannot be an operation is kept with the reason."""
    return [_item_of_batch(workflow, at, document, now) for at, document in enumerate(request.items)]


def _item_of_batch(workflow: WorkflowRequest, index: int, document: Any, now: datetime) -> Item:
    text = json.dumps(document)
    if problem := size_problem(document, app_settings().max_body_bytes):
        return Item(index=index, key=None, text=text, detail=problem.detail)
    try:
        operation = workflow.resolve(document, str(index), now)
    except UnknownTargetError as error:
        reason = DeadLetterReason.UNKNOWN_DEPENDENCY
        return Item(index=index, key=_key_of_item(document), text=text, reason=reason, detail=str(error))
    except InvalidInputError as error:
        return Item(index=index, key=_key_of_item(document), text=text, detail=str(error))
    return Item(index=index, key=operation.key, operation=operation)


class _Keyed(Strict, extra="ignore"):
    """The key of an item that is invalid otherwise."""

    key: Key | None = None


def _key_of_item(document: Any) -> str | None:
    try:
        return None if json_problems(document) else validated(_Keyed, document).key
    except InvalidInputError:
        return None


def saga_steps(workflow: WorkflowRequest, request: SagaRequest, now: datetime) -> tuple[SagaStep, ...]:
    """Resolve every operation and every compensation, and what they refer to.

    Raises:
        InvalidInputError: With every mistake in all of them, each with its pointer.
    """
    references, problems = references_of(request)
    reader = _StepReader(workflow, now, problems)
    steps = [
        (step.name, reader.operation(index, step), reader.compensation(index, step))
        for index, step in enumerate(request.steps)
    ]
    if reader.problems:
        raise InvalidInputError(reader.problems)
    return tuple(
        SagaStep(name=name, operation=operation, compensation=compensation, wanted=references.get(name))
        for name, operation, compensation in steps
        if operation is not None
    )


class _StepReader:
    """Resolves the operations of steps, collecting mistakes instead of stopping at the first."""

    def __init__(self, workflow: WorkflowRequest, now: datetime, problems: list[Problem]) -> None:
        self.problems = problems
        self._workflow = workflow
        self._now = now
        self._seen: set[str] = set()

    def operation(self, index: int, step: StepRequest) -> OperationInput | None:
        """Read the operation of a step; None when it has mistakes."""
        return self._read_operation(
            step.operation, pointer_of("steps", index, "operation"), f"do.{step.name}"
        )

    def compensation(self, index: int, step: StepRequest) -> OperationInput | None:
        """Read the compensation of a step; None when it has none, or one with mistakes."""
        if step.compensation is None:
            return None
        pointer = pointer_of("steps", index, "compensation")
        operation = self._read_operation(step.compensation, pointer, f"undo.{step.name}")
        return None if operation is None else replace(operation, undoes=self._workflow.id)

    def _read_operation(self, document: dict[str, Any], pointer: str, place: str) -> OperationInput | None:
        unknown = [at for at, _ in references_in_operation(document)]
        try:
            operation = self._workflow.resolve(document, place, self._now, unknown)
        except InvalidInputError as error:
            self.problems.extend(
                Problem(pointer + problem.pointer, problem.detail) for problem in error.problems
            )
            return None
        if operation.operation_id in self._seen:
            self.problems.append(Problem(f"{pointer}/key", "is that of another operation of this saga"))
        self._seen.add(operation.operation_id)
        return operation


KEY_REUSED: Final = "the key belongs to another request"


async def start_item(
    hub: TaskHub, operation: OperationInput, now: datetime, needed: Iterable[str] = ()
) -> Completion | None:
    """Start an operation unless its key was used before, and return how it ended if it has.

    An operation that was started here reports its end to `operation.reports_to`. One that was submitted
    elsewhere under the same key reports to nobody, so whoever waits calls this again now and then.

    Args:
        operation: Resolved when the batch or the saga was accepted; its deadline counts from now.
        needed: JSON pointers to the parts of its result that are needed.

    Returns:
        None while it runs.

    Raises:
        TaskHubUnavailableError: It is not known to be started; calling this again is safe.
        azure.core.exceptions.AzureError: The dead letter of a key that is taken could not be written, or a
            result could not be read.
        ValueError: Nobody can read its result, which a saga must not take for one without the values; or
            another of `unreadable.CAUSES`.
    """
    pointers = tuple(needed)
    match await submit(hub, replace(operation.restarted(now), wanted=pointers or None)):
        case Started():
            return None
        case Replayed(document, finished):
            if finished and pointers:
                document = document | {"result": await whole_result(document["result"])}
            return Completion.of(document, pointers)
        case KeyReused():
            return await refuse_item(operation, KEY_REUSED, now)


async def refuse_item(operation: OperationInput, detail: str, now: datetime) -> Completion:
    """Store the dead letter of an operation that can never run, and return its end."""
    is_compensation = operation.undoes is not None
    reason = DeadLetterReason.COMPENSATION_FAILED if is_compensation else DeadLetterReason.VALIDATION_FAILED
    entry = {
        "operation": operation.to_json(),
        "category": Category.MALFORMED.value,
        "reason": reason.value,
        "detail": detail,
        "attempts": [],
    }
    await keep_operation(entry, now)
    return Completion(
        operation_id=operation.operation_id,
        status=OperationState.DEAD_LETTERED,
        category=Category.MALFORMED,
        error=f"{reason.value}: {detail}",
    )


BATCH_SOURCE: Final = "batch"

_AT_ONCE: Final = 10


async def advance_batch(
    hub: TaskHub, batch_id: str, ended: Iterable[Mapping[str, Any]], start: Iterable[int]
) -> list[tuple[int, str]]:
    """Store how items of a batch ended, and start others. Idempotent.

    Args:
        ended: Items (`indices`) and how their operation ended (`ending`).

    Returns:
        Index and operation id of those that were started and have not ended.
    """
    for ending in ended:
        await note_ended(batch_id, ending["indices"], Completion.from_json(ending["ending"]))
    return await start_batch_items(hub, batch_id, start)


async def end_batch(batch_id: str, now: datetime) -> None:
    """Mark a batch as ended."""
    batch = await find_batch(batch_id)
    if batch is not None:
        await close_batch(batch, now)


async def start_batch_items(hub: TaskHub, batch_id: str, indices: Iterable[int]) -> list[tuple[int, str]]:
    """Start items of a batch, or look at them again, and store the ends that they have. Idempotent.

    Those of one order key are started in the order in which the batch has them.

    Returns:
        Index and operation id of those that have not ended.
    """
    items = await map_bounded(partial(read_item, batch_id), sorted(indices), _AT_ONCE)
    started = await map_bounded(partial(_start_in_order, hub, batch_id), _by_order(items), _AT_ONCE)
    return [pair for pairs in started for pair in pairs]


def _by_order(items: Iterable[Item]) -> list[list[Item]]:
    """Return the items in groups: those of one order key together, any other one alone."""
    groups: dict[object, list[Item]] = {}
    for item in items:
        order_key = None if item.operation is None else item.operation.order_key
        groups.setdefault(item.index if order_key is None else order_key, []).append(item)
    return list(groups.values())


async def _start_in_order(hub: TaskHub, batch_id: str, items: Iterable[Item]) -> list[tuple[int, str]]:
    started = [await _start_batch_item(hub, batch_id, item) for item in items]
    return [pair for pair in started if pair is not None]


async def _start_batch_item(hub: TaskHub, batch_id: str, item: Item) -> tuple[int, str] | None:
    index = item.index
    if item.has_ended:
        return None
    if item.operation is None:
        await note_ended(batch_id, [index], await _dead_letter_of_item(batch_id, item))
        return None
    completion = await start_item(hub, replace(item.operation, reports_to=batch_id), clock.now())
    if completion is not None:
        await note_ended(batch_id, [index], completion)
        return None
    await note_running(batch_id, item)
    return index, item.operation.operation_id


async def _dead_letter_of_item(batch_id: str, item: Item) -> Completion:
    await keep_message(
        item.text,
        source=BATCH_SOURCE,
        message_id=f"{batch_id}.{item.index}",
        reason=item.reason,
        detail=item.detail,
        now=clock.now(),
    )
    return Completion(
        operation_id="",
        status=OperationState.DEAD_LETTERED,
        category=Category.MALFORMED,
        error=f"{item.reason.value}: {item.detail}",
    )
