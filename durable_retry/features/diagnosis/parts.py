"""A diagnosis, part by part, in the order in which an operation needs them.

A host that drops messages leaves operations pending, without an error. An orchestration tries the parts that
only it can try (`orchestrators/diagnosis.py`); the app looks at the others when it is asked for the state.

    storage, queues, packages, of features     looked at when asked
    start, entity, timer, activity, index      reached by the orchestration; the last one writes a row
"""

import asyncio
import uuid
from collections.abc import Awaitable
from typing import Final

from azure.core.exceptions import AzureError
from durabletask.client import OrchestrationStatus

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.names import OPERATIONS_QUEUE, QUEUE_SOURCE
from durable_retry.features.diagnosis.names import DIAGNOSIS
from durable_retry.features.diagnosis.rules import DiagnosedPart, Diagnosis, PartState, reached_parts
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import features
from durable_retry.runtime.deferred import imported, unimportable
from durable_retry.settings.configuration import registration
from durable_retry.settings.group import SettingsError
from durable_retry.storage import queues, rounds, tables

# Storage that hangs holds a request for minutes, and a person waits for the diagnosis.
_ANSWERS_WITHIN_SECONDS: Final = 10.0

_PARTITION: Final = "!diagnosis"


async def start_diagnosis(hub: TaskHub) -> str:
    """Start a diagnosis, and return its id."""
    diagnosis_id = f"{DIAGNOSIS}-{uuid.uuid4().hex}"
    await _within_seconds(hub.start_instance(DIAGNOSIS, diagnosis_id, {}, again=False))
    return diagnosis_id


async def find_diagnosis(hub: TaskHub, diagnosis_id: str, *, role: str, caller: str) -> Diagnosis | None:
    """Return how far a diagnosis is; None when there is no such."""
    if not diagnosis_id.startswith(f"{DIAGNOSIS}-"):
        return None
    instance = await _within_seconds(hub.read_instance(diagnosis_id))
    if instance is None:
        return None
    storage = _look_at_part("storage", tables.read(rounds.TABLE, _PARTITION, diagnosis_id))
    added = {name: imported(look) for feature in features() for name, look in feature.diagnosis.items()}
    looks = (_look_for_trouble(name, look(hub)) for name, look in added.items())
    looked_at = await asyncio.gather(storage, _look_at_queues(), _look_at_packages(), *looks)
    has_failed = instance.runtime_status is OrchestrationStatus.FAILED
    reached = reached_parts(instance.custom_status, (instance.failure or "") if has_failed else None)
    parts = [*looked_at[:3], *reached, *looked_at[3:]]
    return Diagnosis(diagnosis_id=diagnosis_id, role=role, caller=caller, parts=parts)


async def _within_seconds[T](answer: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN_SECONDS):
            return await answer
    except TimeoutError:
        raise TaskHubUnavailableError("the task hub does not answer") from None


async def _look_at_queues() -> DiagnosedPart:
    if not registration().wants(QUEUE_SOURCE):
        return DiagnosedPart(name="queues", state=PartState.OK, detail="the app takes none from a queue")
    return await _look_at_part("queues", _require_queue(OPERATIONS_QUEUE))


async def _look_at_packages() -> DiagnosedPart:
    trouble = await asyncio.to_thread(unimportable)
    state = PartState.FAILED if trouble else PartState.OK
    return DiagnosedPart(name="packages", state=state, detail=trouble or None)


class MissingQueueError(Exception):
    """A queue that a trigger of the app listens to does not exist; listening does not create it."""


async def _require_queue(name: str) -> None:
    if not await queues.exists(name):
        raise MissingQueueError(f"the queue {name} does not exist")


async def _look_for_trouble(name: str, look: Awaitable[str]) -> DiagnosedPart:
    try:
        trouble = await _within_seconds(look)
    except (AzureError, TaskHubUnavailableError):
        trouble = ""  # Other parts say what does not answer.
    state = PartState.FAILED if trouble else PartState.OK
    return DiagnosedPart(name=name, state=state, detail=trouble or None)


async def _look_at_part(name: str, look: Awaitable[object]) -> DiagnosedPart:
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN_SECONDS):
            await look
    except TimeoutError:
        detail = f"no answer within {_ANSWERS_WITHIN_SECONDS:.0f} s"
    except (AzureError, SettingsError, MissingQueueError) as error:
        detail = f"{type(error).__name__}: {tables.first_line(error)}"
    else:
        return DiagnosedPart(name=name, state=PartState.OK)
    return DiagnosedPart(name=name, state=PartState.FAILED, detail=detail)


async def trouble_with_tables(diagnosis_id: str) -> str:
    """Write a row of a table, read it and delete it; return what is wrong, "" for nothing."""
    keys = {"PartitionKey": _PARTITION, "RowKey": diagnosis_id}
    try:
        await tables.merge(rounds.TABLE, keys)
        row = await tables.read(rounds.TABLE, _PARTITION, diagnosis_id)
        await tables.delete(rounds.TABLE, _PARTITION, diagnosis_id)
    except AzureError as error:
        return f"{type(error).__name__}: {tables.first_line(error)}"
    return "" if row is not None else "a row that was written is not there"
