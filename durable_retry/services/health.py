"""Whether the app works: its health, whether what it accepts begins, and a diagnosis part by part.

A host that drops messages leaves operations pending, without an error. A diagnosis goes through the parts
that an operation needs. Those that only an orchestration can try, it does (`orchestrators/diagnosis.py`); the
app looks at the others when it is asked how far that is.

    storage, queues, packages, stuck           looked at when asked
    start, entity, timer, activity, index      reached by the orchestration; the last one writes a row
"""

import asyncio
import uuid
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Final, Literal

from azure.core.exceptions import AzureError
from durabletask.client import OrchestrationStatus
from pydantic import Field

from durable_retry import clock
from durable_retry.deferred import imported, unimportable
from durable_retry.engine.base.answers import Answer, read_or
from durable_retry.engine.base.errors import TaskHubUnavailableError
from durable_retry.engine.base.json_forms import JsonShape, is_none, to_rfc3339
from durable_retry.engine.base.names import DIAGNOSIS, OPERATIONS_QUEUE, QUEUE_SOURCE
from durable_retry.plugins import plugins
from durable_retry.runtime.sharing import shared
from durable_retry.services.circuits import refusing_dependencies
from durable_retry.services.upkeep.stuck import stuck_instances
from durable_retry.settings.alerts import alert_settings
from durable_retry.settings.configuration import registration
from durable_retry.settings.group import SettingsError
from durable_retry.stores.dead_letters import records as dead_letter_records
from durable_retry.stores.instances import Instance
from durable_retry.stores.storage import queues, rounds, tables
from durable_retry.stores.stuck import Stuck
from durable_retry.stores.task_hub import TaskHub

# A part that takes longer than this to answer counts as failing.
_PATIENCE_SECONDS: Final = 5.0

_FRESH_SECONDS: Final = 1.0


class HealthPart(Answer):
    """Whether one part works."""

    healthy: bool
    detail: str | None = Field(default=None, exclude_if=is_none)


class Health(Answer):
    """Whether the app can accept operations."""

    status: Annotated[
        Literal["healthy", "degraded", "unhealthy"],
        Field(description="`degraded`: operations are accepted, and do not begin, go on, or are not listed."),
    ]
    parts: dict[str, HealthPart]

    @property
    def accepts(self) -> bool:
        """Whether operations are accepted."""
        return self.status != "unhealthy"


async def read_health(hub: TaskHub) -> Health:
    """Return whether each part works, as it was seen at most a second ago; nothing is raised.

    The route needs no key: however many ask, they cost one look a second.
    """
    return await shared((read_health, hub), partial(_look_at_health, hub), seconds=_FRESH_SECONDS, factor=0)


async def _look_at_health(hub: TaskHub) -> Health:
    checks = {
        "task_hub": hub.check(),
        "storage": tables.read(dead_letter_records.TABLE, "health", "health"),
    }
    results = await asyncio.gather(*(_checked_part(check) for check in checks.values()))
    parts = dict(zip(checks, results, strict=True))
    if not all(part.healthy for part in parts.values()):
        return Health(status="unhealthy", parts=parts)
    added = {name: imported(look) for plugin in plugins() for name, look in plugin.health.items()}
    looks = {"stuck": _stuck_part, "credentials": _credentials_part, **added}
    parts |= zip(looks, await asyncio.gather(*(look(hub) for look in looks.values())), strict=True)
    works = all(part.healthy for part in parts.values())
    return Health(status="healthy" if works else "degraded", parts=parts)


async def _stuck_part(hub: TaskHub) -> HealthPart:
    patience, now = alert_settings().alert_stuck_seconds, clock.now()
    stuck: Stuck = ()
    if patience > 0:
        stuck = await seen_lately(hub, partial(stuck_instances, hub, now), stuck)
    seconds = max(((now - each.since).total_seconds() for each in stuck), default=0.0)
    if seconds <= patience:
        return HealthPart(healthy=True)
    detail = f"{len(stuck)} that stand still, for {seconds:.0f} s; `retryctl doctor --stuck` names them"
    return HealthPart(healthy=False, detail=detail)


async def _credentials_part(hub: TaskHub) -> HealthPart:
    # A customer's credential, which only a limit key's circuit shows, is no matter of the app's.
    refusing: tuple[str, ...] = ()
    refusing = await seen_lately(hub, partial(refusing_dependencies, hub), refusing)
    if not refusing:
        return HealthPart(healthy=True)
    detail = (
        f"the app's credential is refused by {len(refusing)} of its dependencies; `retryctl circuits list`"
    )
    return HealthPart(healthy=False, detail=detail)


async def _checked_part(check: Awaitable[object]) -> HealthPart:
    # The kind of failure and never an address, since the route needs no key.
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await check
    except (TaskHubUnavailableError, AzureError, SettingsError, TimeoutError) as error:
        return HealthPart(healthy=False, detail=type(error).__name__)
    return HealthPart(healthy=True)


# Load balancers ask for the health every few seconds, and these parts cost storage requests.
_KNOWN_FOR_SECONDS: Final = 15.0


async def seen_lately[T](hub: TaskHub, look: partial[Coroutine[Any, Any, T]], nothing: T) -> T:
    """Return what a look saw a moment ago; `nothing` when it failed."""

    async def seen() -> T:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await look()
        except (TaskHubUnavailableError, AzureError, TimeoutError):
            return nothing  # The parts before say what does not answer.

    return await shared((look.func, hub), seen, seconds=_KNOWN_FOR_SECONDS, factor=0)


class PartState(StrEnum):
    """What is known of a part."""

    OK = "ok"
    WAITING = "waiting"
    FAILED = "failed"


class DiagnosedPart(Answer):
    """One part that an operation needs."""

    name: Annotated[str, Field(description="`storage`, `queues`, `packages`, `start`, `entity`, ...")]
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
    looked_at = await asyncio.gather(storage, _look_at_queues(), _look_at_packages(), _look_for_stuck(hub))
    parts = [*looked_at[:3], *reached_parts(instance), looked_at[3]]
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


async def _look_at_packages() -> DiagnosedPart:
    trouble = await asyncio.to_thread(unimportable)
    state = PartState.FAILED if trouble else PartState.OK
    return DiagnosedPart(name="packages", state=state, detail=trouble or None)


class MissingQueueError(Exception):
    """A queue that a trigger of the app listens to does not exist; nobody creates it by listening."""


async def _require_queue(name: str) -> None:
    if not await queues.exists(name):
        raise MissingQueueError(f"the queue {name} does not exist")


async def _look_for_stuck(hub: TaskHub) -> DiagnosedPart:
    try:
        stuck = await _within_seconds(stuck_instances(hub, clock.now()))
    except (AzureError, TaskHubUnavailableError):
        stuck = ()  # Other parts say what does not answer.
    if not stuck:
        return DiagnosedPart(name="stuck", state=PartState.OK)
    detail = f"since {to_rfc3339(stuck[0].since)}: {', '.join(each.instance_id for each in stuck)}"
    return DiagnosedPart(name="stuck", state=PartState.FAILED, detail=detail)


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
