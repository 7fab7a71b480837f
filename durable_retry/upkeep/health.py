"""Whether the app works, part by part: what it accepts operations with, and what plugins look at."""

import asyncio
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any, Final, Literal

from azure.core.exceptions import AzureError
from pydantic import Field

from durable_retry.base.answers import Answer
from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.json_forms import is_none
from durable_retry.circuit.circuits import refusing_dependencies
from durable_retry.dead_letters import records as dead_letter_records
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import plugins
from durable_retry.runtime.deferred import imported
from durable_retry.runtime.sharing import shared
from durable_retry.settings.group import SettingsError
from durable_retry.storage import tables

# A part that takes longer than this to answer counts as failing.
_PATIENCE_SECONDS: Final = 5.0

_FRESH_SECONDS: Final = 1.0


class HealthPart(Answer):
    """Whether one part works."""

    healthy: bool
    detail: str | None = Field(default=None, exclude_if=is_none)


class Health(Answer):
    """Whether the app can accept operations."""

    status: Literal["healthy", "degraded", "unhealthy"] = Field(
        description="`degraded`: operations are accepted, and do not begin, go on, or are not listed."
    )
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
    looks = {"credentials": _credentials_part, **added}
    parts |= zip(looks, await asyncio.gather(*(look(hub) for look in looks.values())), strict=True)
    works = all(part.healthy for part in parts.values())
    return Health(status="healthy" if works else "degraded", parts=parts)


async def _credentials_part(hub: TaskHub) -> HealthPart:
    # Only the app's own credential counts: that of a customer is seen by the circuit of its limit key.
    refusing = await seen_lately(hub, partial(refusing_dependencies, hub), tuple[str, ...]())
    if not refusing:
        return HealthPart(healthy=True)
    refused = f"the app's credential is refused by {len(refusing)} of its dependencies"
    return HealthPart(healthy=False, detail=f"{refused}; `retryctl circuits list`")


async def _checked_part(check: Awaitable[object]) -> HealthPart:
    # The kind of failure and never an address, since the route needs no key.
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await check
    except TimeoutError:
        return HealthPart(healthy=False, detail=f"no answer within {_PATIENCE_SECONDS:.0f} s")
    except (TaskHubUnavailableError, AzureError, SettingsError) as error:
        return HealthPart(healthy=False, detail=f"does not answer as it should: {type(error).__name__}")
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
            return nothing  # The parts `task_hub` and `storage` show what does not answer.

    return await shared((look.func, hub), seen, seconds=_KNOWN_FOR_SECONDS, factor=0)
