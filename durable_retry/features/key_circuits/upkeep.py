"""Upkeep of the circuits of limit keys."""

from datetime import datetime
from functools import partial

from durable_retry.base.answers import read_or
from durable_retry.base.names import CIRCUIT_BREAKER
from durable_retry.circuit.entity import CircuitEntity
from durable_retry.hub.entity_ids import KEY_MARK
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.settings.configuration import dependencies, function_name
from durable_retry.storage import rounds
from durable_retry.upkeep.rounds import STEP_SECONDS


async def forget_idle_circuits(hub: TaskHub, now: datetime) -> None:
    """Forget circuits of limit keys that are not used, for a while, from where the last run stopped."""
    for name, dependency in dependencies().dependencies.items():
        if not dependency.circuit.is_by_key:
            continue
        read = partial(_circuits_after, hub, name)
        async for page in rounds.pages_from_place(f"circuits-{name}", read, STEP_SECONDS):
            for breaker in page:
                if breaker.is_idle(now):
                    await CircuitEntity(hub, name, breaker.limit_key).forget()


async def _circuits_after(
    hub: TaskHub, dependency: str, place: str | None
) -> tuple[list[Breaker], str | None]:
    """Return a page of the circuits of a dependency's limit keys, without those that cannot be read.

    The second value is the `place` of the next page; None after the last page, and for the first.
    """
    prefix = f"{dependency}{KEY_MARK}"
    states, following = await hub.entity_page(function_name(CIRCUIT_BREAKER), place, prefix)
    read = (read_or(partial(Breaker.from_json_text, state), lambda _: Breaker()) for state in states)
    return [breaker for breaker in read if breaker.limit_key is not None], following
