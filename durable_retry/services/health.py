"""The health of the app: whether it can accept operations, and whether what it accepts begins."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Annotated, Final, Literal

from azure.core.exceptions import AzureError
from pydantic import Field

from durable_retry import clock
from durable_retry.engine.base.answers import Answer
from durable_retry.engine.base.errors import TaskHubUnavailableError
from durable_retry.engine.base.json_forms import is_none
from durable_retry.services.upkeep.starting import seconds_without_a_start
from durable_retry.settings.alerts import alert_settings
from durable_retry.settings.group import SettingsError
from durable_retry.stores.dead_letters import records as dead_letter_records
from durable_retry.stores.operations import notes
from durable_retry.stores.storage import tables
from durable_retry.stores.task_hub import TaskHub

# A part that takes longer than this to answer counts as failing.
_PATIENCE_SECONDS: Final = 5.0


class HealthPart(Answer):
    """Whether one part works."""

    healthy: bool
    detail: str | None = Field(default=None, exclude_if=is_none)


class Health(Answer):
    """Whether the app can accept operations."""

    status: Annotated[
        Literal["healthy", "degraded", "unhealthy"],
        Field(description="`degraded`: operations are accepted, and do not begin, or are not listed."),
    ]
    parts: dict[str, HealthPart]

    @property
    def accepts(self) -> bool:
        """Whether operations are accepted."""
        return self.status != "unhealthy"


async def read_health(hub: TaskHub) -> Health:
    """Look whether each part works; nothing is raised."""
    checks = {
        "task_hub": hub.check(),
        "storage": tables.read(dead_letter_records.TABLE, "health", "health"),
    }
    results = await asyncio.gather(*(_checked_part(check) for check in checks.values()))
    parts = dict(zip(checks, results, strict=True))
    if not all(part.healthy for part in parts.values()):
        return Health(status="unhealthy", parts=parts)
    parts |= {"starting": await _starting_part(hub), "index": _index_part()}
    works = all(part.healthy for part in parts.values())
    return Health(status="healthy" if works else "degraded", parts=parts)


async def _starting_part(hub: TaskHub) -> HealthPart:
    seconds = await _seconds_without_a_start(hub)
    if seconds <= alert_settings().alert_not_starting_seconds:
        return HealthPart(healthy=True)
    detail = f"accepted operations have not begun for {seconds:.0f} s; `retryctl doctor` names the part"
    return HealthPart(healthy=False, detail=detail)


def _index_part() -> HealthPart:
    waiting = notes.unwritten()
    if waiting is None:
        return HealthPart(healthy=True)
    seconds = (clock.now() - waiting.since).total_seconds()
    detail = (
        f"storage has not taken the index of operations for {seconds:.0f} s; {waiting.entries} entries wait "
        "in this process, and are lost if it is killed"
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


# Load balancers ask for the health every few seconds, and this part costs storage requests.
_KNOWN_FOR_SECONDS: Final = 15.0

# By task hub: until when, in monotonic seconds, and for how long nothing has begun.
_known: dict[TaskHub, tuple[float, float]] = {}


async def _seconds_without_a_start(hub: TaskHub) -> float:
    """Return for how long accepted operations have not begun, looked at a moment ago; 0 when that failed."""
    patience = alert_settings().alert_not_starting_seconds
    until, seconds = _known.get(hub, (0.0, 0.0))
    if patience <= 0 or clock.monotonic_seconds() < until:
        return seconds
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            seconds = await seconds_without_a_start(hub, clock.now(), timedelta(seconds=patience))
    except (TaskHubUnavailableError, AzureError, TimeoutError):
        seconds = 0.0  # The parts before say what does not answer.
    _known[hub] = (clock.monotonic_seconds() + _KNOWN_FOR_SECONDS, seconds)
    return seconds
