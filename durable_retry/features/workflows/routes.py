"""HTTP: batches and sagas: many operations submitted at once, each validated like any other."""

import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import azure.functions as func
from pydantic import BaseModel

from durable_retry.base.answers import Answer, Page
from durable_retry.base.documents import MAX_DEPTH
from durable_retry.base.errors import (
    ContendedError,
    UnreadableDeadLetterError,
)
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.workflows.batches import (
    BATCH_SOURCE,
    WorkflowRequest,
    accept_batch,
    batches_of_key,
    find_batch,
    list_batches,
)
from durable_retry.features.workflows.rules.document import BatchDocument, BatchSummary, SagaDocument
from durable_retry.features.workflows.rules.keys import workflow_id, workflow_id_for
from durable_retry.features.workflows.rules.references import SAGA_SOURCE, SagaRequest
from durable_retry.features.workflows.rules.restart import RestartBody, RestartedSaga
from durable_retry.features.workflows.rules.shapes import BatchRequest, ItemState
from durable_retry.features.workflows.sagas import (
    NoSuchSagaError,
    WrongSagaStateError,
    accept_saga,
    find_saga,
    list_sagas,
    restart_saga,
    sagas_of_key,
)
from durable_retry.features.workflows.settings import workflow_settings
from durable_retry.http.answers import (
    REPLAYED,
    ConflictError,
    KeyReusedError,
    NotFoundError,
    json_answer,
    required,
    sentence,
)
from durable_retry.http.callers import Act, Caller
from durable_retry.http.parameters import KEY, LIMIT, one_of, row_cursor, text
from durable_retry.http.routes import (
    AWAY,
    KEY_REUSED,
    Declaration,
    Query,
    Routes,
    accepted,
    read_body,
    url_of,
)
from durable_retry.hub.binding import TaskHub
from durable_retry.intake.intake import http_admission
from durable_retry.rules.facts import SubmissionOutcome, TargetType
from durable_retry.rules.operations.envelope import SubmissionHeaders
from durable_retry.rules.operations.submission import DIFFERENT_KEYS
from durable_retry.runtime.concurrency import read_beside

batch_routes = Routes("batches")
saga_routes = Routes(
    "sagas",
    {
        NoSuchSagaError: lambda _: NotFoundError("saga of this id"),
        WrongSagaStateError: lambda error: ConflictError(sentence(error)),
        UnreadableDeadLetterError: lambda error: ConflictError(f"A dead letter cannot be read: {error}."),
        ContendedError: lambda _: ConflictError(
            "Others are changing a dead letter at this moment; try again."
        ),
    },
)

_LEVELS_AROUND: Final = 4
"""What stands around a saga's operation: the body, its steps, a step."""

ITEM_STATUS: Final = one_of("status", ItemState, "Only items with this status; `counts` counts all.")
OF_KEY: Final = text("key", "Only the one with this key of the caller's; the whole key.")
BATCH_CURSOR: Final = row_cursor(r"[0-9]{17}-batch-.+")
SAGA_CURSOR: Final = row_cursor(r"[0-9]{17}-saga-.+")


class AcceptedBatch(Answer):
    """A batch that was accepted, now or before."""

    batch_id: str
    status_url: str


class AcceptedSaga(Answer):
    """A saga that was accepted, now or before."""

    saga_id: str
    status_url: str


def workflow_of(request: func.HttpRequest, source: str, document: Any) -> WorkflowRequest:
    """Return the workflow that the body's `key` or the header `Idempotency-Key` names, or a new one.

    Raises:
        InvalidInputError: The header cannot be read, or names another key than the body.
    """
    written = document.get("key") if isinstance(document, dict) else None
    # The body is refused later where its key is no text.
    in_body = written if isinstance(written, str) else None
    headers = SubmissionHeaders.read(request.headers)
    if None not in (headers.key, in_body) and headers.key != in_body:
        raise InvalidInputError([DIFFERENT_KEYS])
    key = headers.key or in_body
    id_ = (
        workflow_id(source, f"generated:{uuid.uuid4().hex}") if key is None else workflow_id_for(source, key)
    )
    return WorkflowRequest(id_, source, headers.trace, key)


async def _read_document(request: func.HttpRequest) -> Any:
    read = partial(
        read_body,
        request,
        lambda document: document,
        limit_bytes=workflow_settings().max_batch_bytes,
        levels=MAX_DEPTH + _LEVELS_AROUND,
        has_parts=True,
    )
    return await read_beside(read, len(request.get_body()))


async def _submit_workflow(
    request: func.HttpRequest,
    hub: TaskHub,
    source: str,
    accept: Callable[[TaskHub, WorkflowRequest, Any], Awaitable[SubmissionOutcome]],
    answer: Callable[[str, str], Answer],
) -> func.HttpResponse:
    http_admission().require_place()
    document = await _read_document(request)
    workflow = workflow_of(request, source, document)
    outcome = await accept(hub, workflow, document)
    if outcome is SubmissionOutcome.KEY_REUSED:
        raise KeyReusedError
    status_url = f"{url_of(request)}/{workflow.id}"
    headers = {"Location": status_url} | (REPLAYED if outcome is SubmissionOutcome.REPLAYED else {})
    return json_answer(answer(workflow.id, status_url), HTTPStatus.ACCEPTED, headers)


def _submitted(body: type[BaseModel], answer: type[Answer]) -> Declaration:
    words = "Accepted, now or, with the same key, before."
    return {
        "body": body,
        "for_callers": True,
        "parameters": (KEY,),
        "answers": accepted(answer, words, "Location", "Idempotent-Replayed"),
        "errors": (KEY_REUSED, AWAY),
    }


@batch_routes.post("batches", **_submitted(BatchRequest, AcceptedBatch))
async def submit_batch(req: func.HttpRequest, hub: TaskHub) -> func.HttpResponse:
    """Submit many operations; an invalid one does not affect the others."""
    return await _submit_workflow(
        req, hub, BATCH_SOURCE, accept_batch, lambda id_, url: AcceptedBatch(batch_id=id_, status_url=url)
    )


@batch_routes.get("batches", parameters=(OF_KEY, LIMIT, BATCH_CURSOR))
async def list_all_batches(query: Query) -> Page[BatchSummary]:
    """List batches without their items, the newest first."""
    if (key := query[OF_KEY]) is None:
        return await list_batches(query[LIMIT], query[BATCH_CURSOR])
    return await batches_of_key(key)


@batch_routes.get("batches/{batch_id}", for_callers=True, parameters=(ITEM_STATUS,))
async def get_batch(batch_id: str, query: Query) -> BatchDocument:
    """Show a batch, item by item."""
    return required(await find_batch(batch_id, query[ITEM_STATUS]), "batch of this id")


@saga_routes.post("sagas", **_submitted(SagaRequest, AcceptedSaga))
async def submit_saga(req: func.HttpRequest, hub: TaskHub) -> func.HttpResponse:
    """Start a saga."""
    return await _submit_workflow(
        req, hub, SAGA_SOURCE, accept_saga, lambda id_, url: AcceptedSaga(saga_id=id_, status_url=url)
    )


@saga_routes.get("sagas", parameters=(OF_KEY, LIMIT, SAGA_CURSOR))
async def list_all_sagas(query: Query, hub: TaskHub) -> Page[SagaDocument]:
    """List sagas, the newest first."""
    if (key := query[OF_KEY]) is None:
        return await list_sagas(hub, query[LIMIT], query[SAGA_CURSOR])
    return await sagas_of_key(hub, key)


@saga_routes.get("sagas/{saga_id}", for_callers=True)
async def get_saga(saga_id: str, hub: TaskHub) -> SagaDocument:
    """Show a saga: which steps stand, were undone, or are in doubt."""
    return required(await find_saga(hub, saga_id), "saga of this id")


@saga_routes.post(
    "sagas/{saga_id}/restart",
    body=RestartBody,
    act=Act("restarted the saga", TargetType.SAGA),
    answers=accepted(RestartedSaga, "The saga runs again."),
)
async def restart_failed_saga(saga_id: str, body: RestartBody, hub: TaskHub, who: Caller) -> RestartedSaga:
    """Run a saga that was compensated again, from the step that failed or from a chosen one.

    Steps that stand are kept with their results. What was undone gets a new key at its dependency, what may
    have taken effect the same.
    """
    return await restart_saga(hub, saga_id, body, who.known_name)
