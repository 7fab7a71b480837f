"""HTTP: batches and sagas: many operations submitted at once, each validated like any other."""

import uuid
from functools import partial
from http import HTTPStatus
from typing import Final

import azure.functions as func
from pydantic import BaseModel

from durable_retry import clock
from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import BATCH, SAGA, OperationState
from durable_retry.engine.base.validation import validated
from durable_retry.engine.operations.operation import operation_id_for
from durable_retry.engine.operations.request import fingerprint
from durable_retry.engine.references import SagaRequest, references_of
from durable_retry.engine.workflows import BatchProgress, BatchRequest, BatchState, Effect, Saga, SagaState
from durable_retry.services.intake import http_admission
from durable_retry.services.workflows import WorkflowRequest, batch_items, saga_steps
from durable_retry.settings.configuration import app_settings
from durable_retry.stores.task_hub import read_operation, start_instance, starts_are_atomic
from durable_retry.stores.workflows import (
    Batch,
    document_of_batch,
    find_batch,
    find_saga,
    fingerprint_of_saga,
    keep_batch,
    list_batches,
    list_created,
    note_created,
)
from durable_retry.triggers.http.answers import REPLAYED, KeyReusedError, json_answer, page_answer, required
from durable_retry.triggers.http.documents import StatusCounts, UtcInstant
from durable_retry.triggers.http.parameters import CURSOR, KEY, LIMIT
from durable_retry.triggers.http.routes import (
    AWAY,
    KEY_REUSED,
    MISSING,
    PAGING,
    Query,
    Routes,
    accepted,
    page,
    read_body,
    shown,
    url_of,
)
from durable_retry.triggers.http.submissions import key_of, tenant_of, trace_of

batch_routes = Routes("batches")
saga_routes = Routes("sagas")

BATCH_SOURCE: Final = "batch"
SAGA_SOURCE: Final = "saga"

_ACCEPTED: Final = "Accepted, now or, with the same key, before."


class AcceptedBatch(BaseModel):
    """A batch that was accepted, now or before."""

    batch_id: str
    status_url: str


class BatchCounts(StatusCounts):
    """Items by status."""

    total: int


class BatchItem(BaseModel):
    """One item of a batch."""

    index: int
    key: str | None
    operation_id: str | None
    status: OperationState
    error: str | None


class BatchSummary(BaseModel):
    """Where a batch stands, without its items."""

    batch_id: str
    status: BatchState
    max_concurrency: int
    tolerated_failures: int
    counts: BatchCounts
    created_at: UtcInstant
    finished_at: UtcInstant | None


class BatchDocument(BatchSummary):
    """Where a batch stands."""

    items: list[BatchItem]


class BatchPage(BaseModel):
    """A page of batches, the newest first."""

    items: list[BatchSummary]
    next_cursor: str | None


class AcceptedSaga(BaseModel):
    """A saga that was accepted, now or before."""

    saga_id: str
    status_url: str


class SagaPart(BaseModel):
    """An operation of a saga; `status` is null while a compensation is not needed."""

    operation_id: str
    key: str
    status: OperationState | None
    error: str | None


class SagaStep(SagaPart):
    """One step of a saga, and what of it is left in the world."""

    index: int
    name: str
    effect: Effect
    compensation: SagaPart | None


class SagaDocument(BaseModel):
    """Where a saga stands: the names of steps that stand, were undone, or are in doubt."""

    saga_id: str
    status: SagaState
    steps: list[SagaStep]
    stands: list[str]
    undone: list[str]
    unknown: list[str]
    created_at: UtcInstant
    updated_at: UtcInstant


class SagaPage(BaseModel):
    """A page of sagas, the newest first."""

    items: list[SagaDocument]
    next_cursor: str | None


def workflow_of(request: func.HttpRequest, source: str) -> WorkflowRequest:
    """Return the workflow that the header `Idempotency-Key` names, or a new one without it.

    Args:
        request: The request.
        source: `batch` or `saga`.

    Raises:
        InvalidInputError: The header cannot be read.
    """
    given, tenant = key_of(request), tenant_of(request)
    key = f"generated:{uuid.uuid4().hex}" if given is None else f"given:{given}"
    derived = operation_id_for(f"{source}:{tenant}", key).removeprefix("op-")
    return WorkflowRequest(f"{source}-{derived}", source, tenant, trace_of(request))


def _accepted(request: func.HttpRequest, workflow: WorkflowRequest, *, is_replay: bool) -> func.HttpResponse:
    """Return 202 with the URL of the status; `is_replay` says that it was accepted before."""
    status_url = f"{url_of(request)}/{workflow.id}"
    headers = {"Location": status_url} | (REPLAYED if is_replay else {})
    body = {f"{workflow.source}_id": workflow.id, "status_url": status_url}
    return json_answer(body, HTTPStatus.ACCEPTED, headers)


@batch_routes.post(
    "batches",
    body=BatchRequest,
    parameters=(KEY,),
    answers=accepted(AcceptedBatch, _ACCEPTED, "Location", "Idempotent-Replayed"),
    errors=(KEY_REUSED, AWAY),
)
async def submit_batch(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Submit many operations; an invalid one does not affect the others."""
    document = read_body(req, limit_bytes=app_settings().max_batch_bytes)
    request = validated(BatchRequest, document)
    workflow = workflow_of(req, BATCH_SOURCE)
    known = await find_batch(workflow.id)
    print_ = fingerprint(BATCH_SOURCE, document)
    if known is not None and known.fingerprint != print_:
        raise KeyReusedError
    async with http_admission().admitted(hub):
        batch = known or await _kept_batch(workflow, request, print_)
        if batch.finished_at is None:
            # Also a batch that was accepted before: a crash may have come before its start.
            await _start_batch(hub, batch)
    return _accepted(req, workflow, is_replay=known is not None)


@batch_routes.get("batches", parameters=PAGING, answers=page(BatchPage), errors=(AWAY,))
async def list_all_batches(query: Query) -> func.HttpResponse:
    """List batches without their items, the newest first."""
    items, following = await list_batches(query[LIMIT], query[CURSOR])
    return page_answer(items, following)


@batch_routes.get("batches/{batch_id}", answers=shown(BatchDocument), errors=(MISSING, AWAY))
async def get_batch(batch_id: str) -> func.HttpResponse:
    """Show a batch, item by item."""
    batch = required(await find_batch(batch_id), "batch of this id")
    return json_answer(await document_of_batch(batch))


async def _kept_batch(workflow: WorkflowRequest, request: BatchRequest, print_: str) -> Batch:
    """Store a new batch with all its items."""
    now = clock.now()
    batch = Batch(
        batch_id=workflow.id,
        fingerprint=print_,
        total=len(request.items),
        max_concurrency=request.max_concurrency,
        tolerated_failures=request.tolerated_failures,
        created_at=to_rfc3339(now),
    )
    await keep_batch(batch, batch_items(workflow, request, now))
    return batch


async def _start_batch(hub: str, batch: Batch) -> None:
    progress = BatchProgress(total=batch.total, max_concurrency=batch.max_concurrency)
    given = {"batch_id": batch.batch_id, "progress": progress.to_json()}
    await start_instance(hub, BATCH, batch.batch_id, given, again=False)


@saga_routes.post(
    "sagas",
    body=SagaRequest,
    parameters=(KEY,),
    answers=accepted(AcceptedSaga, _ACCEPTED, "Location", "Idempotent-Replayed"),
    errors=(KEY_REUSED, AWAY),
)
async def submit_saga(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """Start a saga."""
    document = read_body(req, limit_bytes=app_settings().max_batch_bytes)
    request = validated(SagaRequest, document)
    references = references_of(request)
    workflow = workflow_of(req, SAGA_SOURCE)
    now = clock.now()
    saga = Saga(
        saga_id=workflow.id,
        steps=saga_steps(workflow, request, references, now),
        created_at=now,
        fingerprint=fingerprint(SAGA_SOURCE, document),
        undoes_unknown=True,
        has_references=True if references else None,
    )
    async with http_admission().admitted(hub):
        await _note_saga(hub, saga)
        is_started = await start_instance(hub, SAGA, saga.saga_id, {"saga": saga.to_json()}, again=False)
    if not (is_started and starts_are_atomic(hub)):
        known = await read_operation(hub, saga.saga_id)
        if known is not None and fingerprint_of_saga(known) != saga.fingerprint:
            raise KeyReusedError
    return _accepted(req, workflow, is_replay=not is_started)


@saga_routes.get("sagas", parameters=PAGING, answers=page(SagaPage), errors=(AWAY,))
async def list_all_sagas(query: Query, hub: str) -> func.HttpResponse:
    """List sagas, the newest first."""
    items, following = await list_created(
        SAGA_SOURCE, partial(find_saga, hub), limit=query[LIMIT], cursor=query[CURSOR]
    )
    return page_answer(items, following)


@saga_routes.get("sagas/{saga_id}", answers=shown(SagaDocument), errors=(MISSING, AWAY))
async def get_saga(saga_id: str, hub: str) -> func.HttpResponse:
    """Show a saga: which steps stand, were undone, or are in doubt."""
    return json_answer(required(await find_saga(hub, saga_id), "saga of this id"))


async def _note_saga(hub: str, saga: Saga) -> None:
    """List a saga under the time of its first submission."""
    known = await read_operation(hub, saga.saga_id)
    created_at = to_rfc3339(saga.created_at) if known is None else known.input["saga"]["created_at"]
    await note_created(SAGA_SOURCE, saga.saga_id, created_at)
