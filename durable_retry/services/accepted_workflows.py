"""Batches and sagas as they are submitted and shown: accept one, look at one, list them."""

from collections.abc import Mapping
from typing import Any

from durable_retry import clock
from durable_retry.engine.base.answers import Page
from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import BATCH, SAGA, OperationState
from durable_retry.engine.base.validation import validated
from durable_retry.engine.facts import SubmissionOutcome
from durable_retry.engine.operations.keys import fingerprint, workflow_id_for
from durable_retry.engine.workflows.document import BatchDocument, BatchSummary, SagaDocument
from durable_retry.engine.workflows.references import SAGA_SOURCE, SagaRequest
from durable_retry.engine.workflows.shapes import BatchProgress, BatchRequest, Saga
from durable_retry.services.sources import http_admission
from durable_retry.services.workflows import BATCH_SOURCE, WorkflowRequest, batch_items, saga_steps
from durable_retry.stores import sagas
from durable_retry.stores import workflows as store
from durable_retry.stores.task_hub import TaskHub
from durable_retry.stores.workflows import Batch


async def accept_batch(hub: TaskHub, workflow: WorkflowRequest, document: Any) -> SubmissionOutcome:
    """Keep a batch and start it, unless its key was used before.

    Args:
        document: A body of `POST /api/batches`.

    Raises:
        InvalidInputError: With every mistake of the batch; an invalid item does not affect the others.
        OverloadedError: Too much is under way.
        TaskHubUnavailableError: It is not known to be started; submitting again is safe.
    """
    request = validated(BatchRequest, document)
    stored = await store.find_batch(workflow.id)
    print_ = _fingerprint_of(BATCH_SOURCE, document)
    if stored is not None and stored.fingerprint != print_:
        return SubmissionOutcome.KEY_REUSED
    async with http_admission().admitted(hub):
        batch = stored or await _kept_batch(workflow, request, print_)
        if batch.finished_at is None:
            # Also a batch that was accepted before: a crash may have come before its start.
            await _start_batch(hub, batch)
    return SubmissionOutcome.STARTED if stored is None else SubmissionOutcome.REPLAYED


async def _kept_batch(workflow: WorkflowRequest, request: BatchRequest, print_: str) -> Batch:
    now = clock.now()
    batch = Batch(
        batch_id=workflow.id,
        fingerprint=print_,
        total=len(request.items),
        max_concurrency=request.max_concurrency,
        tolerated_failures=request.tolerated_failures,
        created_at=now,
        key=workflow.key,
    )
    await store.keep_batch(batch, batch_items(workflow, request, now))
    return batch


def _fingerprint_of(source: str, document: Mapping[str, Any]) -> str:
    # A key in the body or in the header is the same request.
    return fingerprint(source, {name: value for name, value in document.items() if name != "key"})


async def _start_batch(hub: TaskHub, batch: Batch) -> None:
    progress = BatchProgress(total=batch.total, max_concurrency=batch.max_concurrency)
    given = {"batch_id": batch.batch_id, "progress": progress.to_json()}
    await hub.start_instance(BATCH, batch.batch_id, given, again=False)


async def find_batch(batch_id: str, status: OperationState | None = None) -> BatchDocument | None:
    """Return a batch with its items, or those of a status; None when there is none of this id."""
    batch = await store.find_batch(batch_id)
    return None if batch is None else await store.document_of_batch(batch, status)


async def list_batches(limit: int, cursor: str | None) -> Page[BatchSummary]:
    """Return batches without their items, the newest first."""
    batches, following = await store.list_batches(limit, cursor)
    return Page[BatchSummary](items=tuple(batches), next_cursor=following)


async def batches_of_key(key: str, tenant: str) -> Page[BatchSummary]:
    """Return the batch of a caller's key, without its items, or nothing."""
    batch = await store.find_summary(workflow_id_for(BATCH_SOURCE, tenant, key))
    return Page[BatchSummary](items=() if batch is None else (batch,))


async def accept_saga(hub: TaskHub, workflow: WorkflowRequest, document: Any) -> SubmissionOutcome:
    """Start a saga unless its key was used before; arguments and errors as `accept_batch`."""
    request = validated(SagaRequest, document)
    now = clock.now()
    steps = saga_steps(workflow, request, now)
    saga = Saga(
        saga_id=workflow.id,
        steps=steps,
        created_at=now,
        fingerprint=_fingerprint_of(SAGA_SOURCE, document),
        key=workflow.key,
    )
    async with http_admission().admitted(hub):
        await _note_saga(hub, saga)
        is_started = await hub.start_instance(SAGA, saga.saga_id, {"saga": saga.to_json()}, again=False)
    if not (is_started and hub.starts_are_atomic):
        instance = await hub.read_instance(saga.saga_id)
        if instance is not None and sagas.fingerprint_of_saga(instance) != saga.fingerprint:
            return SubmissionOutcome.KEY_REUSED
    return SubmissionOutcome.STARTED if is_started else SubmissionOutcome.REPLAYED


async def _note_saga(hub: TaskHub, saga: Saga) -> None:
    # Under the time of its first submission.
    instance = await hub.read_instance(saga.saga_id)
    created_at = to_rfc3339(saga.created_at) if instance is None else instance.input["saga"]["created_at"]
    await store.note_created(SAGA_SOURCE, saga.saga_id, created_at)


async def find_saga(hub: TaskHub, saga_id: str) -> SagaDocument | None:
    """Return a saga; None when there is none of this id."""
    return await sagas.find_saga(hub, saga_id)


async def sagas_of_key(hub: TaskHub, key: str, tenant: str) -> Page[SagaDocument]:
    """Return the saga of a caller's key, or nothing; errors as `find_saga`."""
    saga = await sagas.find_saga(hub, workflow_id_for(SAGA_SOURCE, tenant, key))
    return Page[SagaDocument](items=() if saga is None else (saga,))


async def list_sagas(hub: TaskHub, limit: int, cursor: str | None) -> Page[SagaDocument]:
    """Return sagas, the newest first."""
    listed, following = await store.list_created(
        hub, SAGA_SOURCE, sagas.document_of_saga, limit=limit, cursor=cursor
    )
    return Page[SagaDocument](items=tuple(listed), next_cursor=following)
