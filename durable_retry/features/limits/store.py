"""The state of the entity `call_limiter`."""

from durable_retry.base.answers import read_or
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.hub.entity_ids import limiter_id
from durable_retry.hub.task_hub import TaskHub


async def read_limiter(hub: TaskHub, dependency: str) -> Limiter:
    """Return the state of a dependency's limiter; the initial one where it cannot be read."""
    text = await hub.read_entity(limiter_id(dependency))
    return read_or(lambda: Limiter.from_json_text(text or "{}"), lambda _: Limiter())
