"""Batches and sagas: accept one, look at one, list them, and start their operations one by one.

Operations are resolved when the batch or saga is accepted, like any other submission, and started later.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any, Final

from durable_retry.attempt.results import whole_result
from durable_retry.base.answers import Page
from durable_retry.base.documents import Rounded, part_problems
from durable_retry.base.names import Category, DeadLetterReason, OperationState
from durable_retry.base.trace_context import TraceContext
from durable_retry.base.validation import (
    InvalidInputError,
    Key,
    Strict,
    validated,
)
from durable_retry.dead_letters.records import keep_message, keep_operation
from durable_retry.features.workflows import batch_store as store
from durable_retry.features.workflows.batch_store import Batch, Item
from durable_retry.features.workflows.names import BATCH
from durable_retry.features.workflows.rules.document import BatchDocument, BatchSummary
from durable_retry.features.workflows.rules.keys import workflow_id_for
from durable_retry.features.workflows.rules.shapes import BatchProgress, BatchRequest, ItemState
from durable_retry.hub.task_hub import TaskHub
from durable_retry.intake.intake import MAX_DETAIL_CHARS, http_admission
from durable_retry.operations.actions import KEY_REUSED, KeyReused, Replayed, Started, submit
from durable_retry.rules.config.dependency import UnknownTargetError
from durable_retry.rules.dead_letters.record import of_message
from durable_retry.rules.facts import SubmissionOutcome
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.operations.envelope import ParsedEnvelope
from durable_retry.rules.operations.keys import ScopedKey, fingerprint
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.submission import Naming, read_operation
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import map_bounded
from durable_retry.settings.configuration import app_settings, find_dependency, targets


@dataclass(frozen=True, slots=True)
class WorkflowRequest:
    """A batch or a saga about to be accepted.

    Attributes:
        id: Derived from the key, and so the same for the same key on every machine.
        source: `batch` or `saga`.
        key: The caller's; None without one.
    """

    id: str
    source: str
    trace: TraceContext | None = None
    key: str | None = None

    def resolve(
        self,
        document: Any,
        place: str,
        now: datetime,
        comes_later: Callable[[str], bool] | None = None,
    ) -> OperationInput:
        """Return the operation of an item.

        Args:
            document: A body of `POST /api/operations`; without a key in it, the key is derived from the
                workflow's id and the place.
            comes_later: Whether the value at a JSON pointer is known later.

        Raises:
            UnknownTargetError: Its dependency or handler is not configured.
            InvalidInputError: With everything else that is wrong with it.
        """
        if problems := part_problems(document, app_settings().max_body_bytes):
            raise InvalidInputError(problems)
        naming = Naming(own=ScopedKey(f"source:{self.source}", f"{self.id}.{place}"))
        return read_operation(
            ParsedEnvelope(document),
            naming,
            targets(),
            source=self.source,
            now=now,
            trace=self.trace,
            comes_later=comes_later,
        )


async def batch_items(workflow: WorkflowRequest, request: BatchRequest, now: datetime) -> list[Item]:
    """Validate the items of a batch; one that cannot be an operation is kept with the reason."""
    items = []
    for index, document in enumerate(request.items):
        await asyncio.sleep(0)  # lets other tasks run
        items.append(_item_of_batch(workflow, index, document, now))
    return items


def _item_of_batch(workflow: WorkflowRequest, index: int, document: Any, now: datetime) -> Item:
    try:
        operation = workflow.resolve(document, str(index), now)
    except InvalidInputError as error:
        return _refused_item(index, document, error)
    return Item(index=index, key=operation.key, operation=operation)


def _refused_item(index: int, document: Any, error: InvalidInputError) -> Item:
    is_unknown = isinstance(error, UnknownTargetError)
    return Item(
        index=index,
        key=_key_of_item(document),
        text=text_as_read(document),
        reason=DeadLetterReason.UNKNOWN_DEPENDENCY if is_unknown else DeadLetterReason.VALIDATION_FAILED,
        detail=str(error)[:MAX_DETAIL_CHARS],
    )


def text_as_read(document: Any) -> str:
    """Return the text of a document that was read, with the numbers that no float holds as they came."""
    numbers: list[str] = []

    def mark_of(number: Rounded) -> str:
        numbers.append(number.text)
        return mark

    # No document holds its own hash.
    mark = sha256(repr(document).encode("utf-8", "surrogatepass")).hexdigest()
    first, *rest = json.dumps(document, default=mark_of).split(f'"{mark}"')
    return first + "".join(number + part for number, part in zip(numbers, rest, strict=True))


class _Keyed(Strict, extra="ignore"):
    """The key of an item that is invalid otherwise."""

    key: Key | None = None


def _key_of_item(document: Any) -> str | None:
    try:
        return validated(_Keyed, document).key
    except InvalidInputError:
        return None


async def start_item(
    hub: TaskHub, operation: OperationInput, now: datetime, needed: Iterable[str] = ()
) -> Completion | None:
    """Start an operation unless its key was used before, and return how it ended if it has.

    An operation that was started here reports its end to `operation.reports_to`. One that was submitted
    elsewhere under the same key does not, so a batch or saga that waits calls this again now and then.

    Args:
        operation: Resolved when the batch or the saga was accepted; its deadline counts from now.
        needed: JSON pointers to the parts of its result that are needed.

    Returns:
        None while it runs.

    Raises:
        TaskHubUnavailableError: It is not known to be started; calling this again is safe.
        azure.core.exceptions.AzureError: The dead letter of a key that is taken could not be written, or a
            result could not be read.
        ValueError: Its result cannot be read, which a saga must not take for one without the values; or
            another of `answers.CAUSES`.
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
            return await refuse_item(operation, f"/key: {KEY_REUSED}", now)


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
    return Completion(
        operation_id=operation.operation_id,
        status=OperationState.DEAD_LETTERED,
        category=Category.MALFORMED,
        error=f"{reason.value}: {detail}",
        dead_letter_id=await keep_operation(entry, now),
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
    ends = {index: Completion.from_json(item["ending"]) for item in ended for index in item["indices"]}
    await store.note_ended(batch_id, ends)
    return await start_batch_items(hub, batch_id, start)


async def end_batch(batch_id: str, now: datetime) -> None:
    """Mark a batch as ended."""
    batch = await store.find_batch(batch_id)
    if batch is not None:
        await store.close_batch(batch, now)


async def start_batch_items(hub: TaskHub, batch_id: str, indices: Iterable[int]) -> list[tuple[int, str]]:
    """Start items of a batch, or look at them again, and store the ends that they have. Idempotent.

    Those of one order key are started in the order in which the batch has them.

    Returns:
        Index and operation id of those that have not ended.
    """
    items = await map_bounded(partial(store.read_item, batch_id), sorted(indices), _AT_ONCE)
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
        await store.note_ended(batch_id, {index: await _dead_letter_of_item(batch_id, item)})
        return None
    completion = await start_item(hub, replace(item.operation, reports_to=batch_id), clock.now())
    if completion is not None:
        await store.note_ended(batch_id, {index: completion})
        return None
    await store.note_running(batch_id, item)
    return index, item.operation.operation_id


async def _dead_letter_of_item(batch_id: str, item: Item) -> Completion:
    letter = of_message(
        item.text,
        source=BATCH_SOURCE,
        message_id=f"{batch_id}.{item.index}",
        reason=item.reason,
        detail=item.detail,
        now=clock.now(),
    )
    await keep_message(letter)
    return Completion(
        operation_id="",
        status=OperationState.DEAD_LETTERED,
        category=Category.MALFORMED,
        error=f"{item.reason.value}: {item.detail}",
    )


async def accept_batch(hub: TaskHub, workflow: WorkflowRequest, document: Any) -> SubmissionOutcome:
    """Keep a batch and start it, unless its key was used before.

    Args:
        document: A body of `POST /api/batches`.

    Raises:
        TaskHubUnavailableError: It is not known to be started; submitting again is safe.
    """
    request = validated(BatchRequest, document)
    stored = await store.find_batch(workflow.id)
    own_print = fingerprint_of_request(BATCH_SOURCE, document)
    if stored is not None and stored.fingerprint != own_print:
        return SubmissionOutcome.KEY_REUSED
    async with http_admission().admitted(hub):
        batch = stored or await _keep_batch(workflow, request, own_print)
        if batch.finished_at is None:
            # Also a batch that was accepted before: a crash may have come before its start.
            await _start_batch(hub, batch)
    return SubmissionOutcome.STARTED if stored is None else SubmissionOutcome.REPLAYED


async def _keep_batch(workflow: WorkflowRequest, request: BatchRequest, own_print: str) -> Batch:
    now = clock.now()
    batch = Batch(
        batch_id=workflow.id,
        fingerprint=own_print,
        total=len(request.items),
        max_concurrency=request.max_concurrency,
        tolerated_failures=request.tolerated_failures,
        created_at=now,
        key=workflow.key,
    )
    await store.keep_batch(batch, await batch_items(workflow, request, now))
    return batch


def fingerprint_of_request(source: str, document: Mapping[str, Any]) -> str:
    """Return what makes two submissions of a batch or a saga the same.

    A key in the body or in the header is the same request, and so is a dependency by each of its names.
    """
    of_names = {"items": _first_named, "steps": _step_first_named}
    compared = {
        name: list(map(of_names[name], value)) if name in of_names else value
        for name, value in document.items()
        if name != "key"
    }
    return fingerprint(source, compared)


def _first_named(operation: Any) -> Any:
    name = operation.get("dependency") if isinstance(operation, dict) else None
    dependency = find_dependency(name) if isinstance(name, str) else None
    return operation if dependency is None else operation | {"dependency": dependency.names[0]}


def _step_first_named(step: Mapping[str, Any]) -> dict[str, Any]:
    return {part: _first_named(value) for part, value in step.items()}


async def _start_batch(hub: TaskHub, batch: Batch) -> None:
    progress = BatchProgress(total=batch.total, max_concurrency=batch.max_concurrency)
    input_ = {"batch_id": batch.batch_id, "progress": progress.to_json()}
    await hub.start_instance(BATCH, batch.batch_id, input_, again=False)


async def find_batch(batch_id: str, status: ItemState | None = None) -> BatchDocument | None:
    """Return a batch with its items, or those of a status; None when there is none of this id."""
    batch = await store.find_batch(batch_id)
    return None if batch is None else await store.document_of_batch(batch, status)


async def list_batches(limit: int, cursor: str | None) -> Page[BatchSummary]:
    """Return batches without their items, the newest first."""
    batches, following = await store.list_batches(limit, cursor)
    return Page[BatchSummary](items=tuple(batches), next_cursor=following)


async def batches_of_key(key: str) -> Page[BatchSummary]:
    """Return the batch of a caller's key, without its items, or nothing."""
    batch = await store.find_summary(workflow_id_for(BATCH_SOURCE, key))
    return Page[BatchSummary](items=() if batch is None else (batch,))
