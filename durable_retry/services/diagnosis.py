"""A diagnosis: each part that an operation needs, in their order, and whether it works.

An orchestration goes through those that only it can try (`orchestrators/diagnosis.py`); the app looks at the
others when it is asked how far that is.

    storage, queues                looked at when asked
    start, entity, timer, activity, index      reached by the orchestration
"""

import asyncio
import uuid
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from azure.core.exceptions import AzureError
from durabletask.client import OrchestrationStatus
from pydantic import Field

from durable_retry.engine.base.answers import Answer, read_or
from durable_retry.engine.base.errors import TaskHubUnavailableError
from durable_retry.engine.base.json_forms import JsonShape
from durable_retry.engine.base.names import DIAGNOSIS, OPERATIONS_QUEUE, QUEUE_SOURCE
from durable_retry.settings.configuration import registration
from durable_retry.settings.group import SettingsError
from durable_retry.stores.instances import Instance
from durable_retry.stores.operations import index as operation_index
from durable_retry.stores.storage import queues, tables
from durable_retry.stores.task_hub import TaskHub


class PartState(StrEnum):
    """What is known of a part."""

    OK = "ok"
    WAITING = "waiting"
    FAILED = "failed"


class DiagnosedPart(Answer):
    """One part that an operation needs."""

    name: Annotated[str, Field(description="`storage`, `queues`, `start`, `entity`, `timer`, ...")]
    state: PartState
    detail: Annotated[str | None, Field(description="What was seen; null where there is nothing to say.")] = (
        None
    )
    at: Annotated[datetime | None, Field(description="When the orchestration reached it.")] = None


class Diagnosis(Answer):
    """How far a diagnosis is: its parts in the order in which an operation needs them."""

    diagnosis_id: str
    role: Annotated[str, Field(description="Of the caller, as the app sees it.")]
    caller: Annotated[str, Field(description="Name of the caller; `api` when it is not known.")]
    parts: list[DiagnosedPart]


REACHED: Final = ("start", "entity", "timer", "activity", "index")
"""What the orchestration goes through."""

# Storage that hangs holds a request for minutes; who asks for a diagnosis waits for one.
_ANSWERS_WITHIN_SECONDS: Final = 10.0

# Sorts before every list of the index.
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
    storage = _look_at_part("storage", tables.read(operation_index.TABLE, _PARTITION, diagnosis_id))
    parts = [*await asyncio.gather(storage, _look_at_queues()), *reached_parts(instance)]
    return Diagnosis(diagnosis_id=diagnosis_id, role=role, caller=caller, parts=parts)


async def _within_seconds[T](answer: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN_SECONDS):
            return await answer
    except TimeoutError:
        raise TaskHubUnavailableError("the task hub does not answer") from None


@dataclass(frozen=True, slots=True)
class _Failure(JsonShape):
    """The part that failed, and why."""

    part: str
    detail: str


@dataclass(frozen=True, slots=True)
class _Progress(JsonShape):
    """The custom status of a diagnosis: when it reached each part, and what failed."""

    reached: Mapping[str, datetime] = field(default_factory=dict)
    failed: _Failure | None = None


def reached_parts(instance: Instance) -> list[DiagnosedPart]:
    """Return the parts that the orchestration goes through, by its custom status."""
    progress = read_or(
        lambda: _Progress.from_json(instance.custom_status or {}),
        lambda reason: _Progress(failed=_Failure(REACHED[0], reason)),
    )
    reached, failed = progress.reached, progress.failed
    if instance.runtime_status is OrchestrationStatus.FAILED and failed is None:
        first = next((name for name in REACHED if name not in reached), REACHED[-1])
        failed = _Failure(first, instance.failure or "")
    return [_reached_part(name, reached.get(name), failed) for name in REACHED]


def _reached_part(name: str, at: datetime | None, failed: _Failure | None) -> DiagnosedPart:
    if at is not None:
        return DiagnosedPart(name=name, state=PartState.OK, at=at)
    if failed is not None and failed.part == name:
        return DiagnosedPart(name=name, state=PartState.FAILED, detail=failed.detail)
    return DiagnosedPart(name=name, state=PartState.WAITING)


async def _look_at_queues() -> DiagnosedPart:
    if not registration().wants(QUEUE_SOURCE):
        return DiagnosedPart(name="queues", state=PartState.OK, detail="the app takes none from a queue")
    return await _look_at_part("queues", _require_queue(OPERATIONS_QUEUE))


class MissingQueueError(Exception):
    """A queue that a trigger of the app listens to does not exist; nobody creates it by listening."""


async def _require_queue(name: str) -> None:
    if not await queues.exists(name):
        raise MissingQueueError(f"the queue {name} does not exist")


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


async def trouble_with_index(diagnosis_id: str) -> str:
    """Write a row of the index of operations, read it and delete it; return what is wrong, "" for nothing."""
    keys = {"PartitionKey": _PARTITION, "RowKey": diagnosis_id}
    try:
        await tables.merge(operation_index.TABLE, keys)
        row = await tables.read(operation_index.TABLE, _PARTITION, diagnosis_id)
        await tables.delete(operation_index.TABLE, _PARTITION, diagnosis_id)
    except AzureError as error:
        return f"{type(error).__name__}: {tables.first_line(error)}"
    return "" if row is not None else "a row that was written is not there"
