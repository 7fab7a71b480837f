"""The lists of batches and sagas that a search goes through, where the app has them."""

from typing import Final

from durable_retry.features.workflows.batches import batches_of_key, list_batches
from durable_retry.features.workflows.rules.document import SagaDocument
from durable_retry.features.workflows.rules.shapes import BatchState, SagaState
from durable_retry.features.workflows.sagas import list_sagas, sagas_of_key
from durable_retry.hub.task_hub import TaskHub
from durable_retry_console.finding.question import (
    INSTANCES_READ,
    FoundItem,
    FoundList,
    FoundType,
    Items,
    Question,
)


async def _read_batches(_hub: TaskHub, question: Question, limit: int, cursor: str | None) -> Items:
    key, most = question.key, min(limit, INSTANCES_READ)
    page = await (list_batches(most, cursor) if key is None else batches_of_key(key))
    return [
        FoundItem.taken_from(batch, type=FoundType.BATCH, id=batch.batch_id)
        for batch in page.items
        if question.has_words(batch.batch_id, batch.status, batch.key)
    ], page.next_cursor


async def _read_sagas(hub: TaskHub, question: Question, limit: int, cursor: str | None) -> Items:
    key, most = question.key, min(limit, INSTANCES_READ)
    page = await (list_sagas(hub, most, cursor) if key is None else sagas_of_key(hub, key))
    return [
        FoundItem.taken_from(
            saga,
            type=FoundType.SAGA,
            id=saga.saga_id,
            error=f"{saga.reason}: {saga.error}" if saga.reason else None,
        )
        for saga in page.items
        if question.has_words(saga.saga_id, saga.status, saga.key, *_saga_names(saga))
    ], page.next_cursor


def _saga_names(saga: SagaDocument) -> list[str | None]:
    parts = [part for step in saga.steps for part in (step.compensation, step) if part is not None]
    names = [text for part in parts for text in (part.key, part.operation_id, part.error)]
    return [*(step.name for step in saga.steps), *names]


LISTS: Final = {
    "batches": FoundList(FoundType.BATCH, BatchState, ("key",), _read_batches),
    "sagas": FoundList(FoundType.SAGA, SagaState, ("key",), _read_sagas),
}
