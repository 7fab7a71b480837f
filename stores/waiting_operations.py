"""Operations that wait for a circuit: found in the task hub page by page, and woken."""

import asyncio
import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import grpc
from durabletask.client import OrchestrationStatus
from durabletask.internal.orchestrator_service_pb2 import OrchestrationState as StateMessage

from engine.circuit import HandMessage
from engine.instants import from_rfc3339, to_rfc3339
from engine.vocabulary import OperationState
from stores.instance_pages import Selection, operations_page
from stores.task_hub import TaskHubUnavailableError, client_for, raise_event

CIRCUIT_EVENT: Final = "circuit_changed"
"""Name of the event that ends a wait for the circuit."""

RELEASE_WAITING: Final = "release_waiting"
"""Name of the orchestration that wakes all operations that wait for one circuit."""

WAKE_WAITING: Final = "wake_waiting"
"""Name of the activity that wakes some of them."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of running operations.

    Attributes:
        waiting: Ids of those that wait for the circuit in question.
        following: Where the next page begins; None after the last one.
    """

    waiting: tuple[str, ...]
    following: str | None


async def start_release(hub: str, dependency: str, hand: HandMessage) -> None:
    """Start waking the operations that wait for a circuit, once what was done by hand holds.

    Args:
        hub: Configuration of the durable client.
        dependency: Whose circuit.
        hand: What was done; done twice it counts once.

    Raises:
        TaskHubUnavailableError: It could not be started.
    """
    client = await client_for(hub)
    try:
        await client.schedule_new_orchestration(
            RELEASE_WAITING,
            input={"dependency": dependency, "hand": hand.to_json()},
            instance_id=f"release-{dependency}-{uuid.uuid4().hex}",
        )
    except grpc.aio.AioRpcError as error:
        raise _unavailable(error) from error


async def waiting_page(hub: str, dependency: str, since_before: datetime, position: str | None) -> Page:
    """Look through one page of the task hub for operations that wait for a circuit.

    Args:
        hub: Configuration of the durable client.
        dependency: Whose circuit.
        since_before: Only those whose present wait began before this instant.
        position: `following` of the page before; None for the first.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    selection = Selection(runtime_statuses=(OrchestrationStatus.RUNNING,))
    page = await operations_page(hub, selection, position)
    waiting = tuple(
        found.instanceId for found in page.instances if _waits_for(found, dependency, since_before)
    )
    return Page(waiting, page.following)


async def wake(hub: str, operation_ids: Iterable[str], changed_at: datetime) -> None:
    """Tell waiting operations that the circuit changed; each asks again and is let go in its turn.

    Args:
        hub: Configuration of the durable client.
        operation_ids: Whom to tell.
        changed_at: A wait that began later knows of it, and goes on.

    Raises:
        TaskHubUnavailableError: The task hub did not take all of it.
    """
    told = {"at": to_rfc3339(changed_at)}
    await asyncio.gather(*(raise_event(hub, each, CIRCUIT_EVENT, told) for each in operation_ids))


def _waits_for(message: StateMessage, dependency: str, since_before: datetime) -> bool:
    shown = _object(message.customStatus.value)
    if shown.get("status") != OperationState.WAITING_CIRCUIT.value:
        return False
    if from_rfc3339(shown["updated_at"]) >= since_before:
        return False
    return bool(shown["dependency"] == dependency)


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text) if text else None
    return value if isinstance(value, dict) else {}


def _unavailable(error: grpc.aio.AioRpcError) -> TaskHubUnavailableError:
    return TaskHubUnavailableError(f"the task hub answered {error.code().name}")
