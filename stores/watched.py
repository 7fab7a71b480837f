"""What is watched, read at a cost that depends on what is open, pending or configured only."""

import asyncio
from datetime import datetime
from typing import Final

from engine.alert import Reading, Thresholds
from engine.circuit import CircuitState
from engine.dependency import Dependency
from stores.circuit_entity import CircuitEntity
from stores.configuration import dependencies
from stores.dead_letter_tally import read_summary
from stores.outbox_index import list_notes

_CLOSED_TO_CALLS: Final = frozenset({CircuitState.OPEN, CircuitState.FORCED_OPEN, CircuitState.HALF_OPEN})
"""Half open counts: a dependency whose probes fail is in it again and again, and is still down."""

_MANY_NOTES: Final = 999


async def read_all(hub: str, thresholds: Thresholds, now: datetime) -> list[Reading]:
    """Read everything that has a threshold.

    Args:
        hub: Configuration of the durable client.
        thresholds: From when on a person should know.
        now: Aware UTC instant.

    Raises:
        TaskHubUnavailableError: A circuit could not be read.
    """
    parts = await asyncio.gather(
        _dead_letters(thresholds, now), _outbox(thresholds, now), _circuits(hub, thresholds, now)
    )
    return [reading for part in parts for reading in part]


async def _dead_letters(thresholds: Thresholds, now: datetime) -> list[Reading]:
    waiting = (await read_summary()).total
    return [
        Reading("dead_letters", float(waiting.count), thresholds.dead_letters),
        Reading(
            "dead_letter_age_seconds", _seconds(waiting.oldest_at, now), thresholds.dead_letter_age_seconds
        ),
    ]


async def _outbox(thresholds: Thresholds, now: datetime) -> list[Reading]:
    """Look at the operations with pending events; beyond a thousand of them the number alone says enough."""
    notes, _ = await list_notes(_MANY_NOTES, None)
    oldest_at = min((note.noted_at for note in notes), default=None)
    return [Reading("outbox_lag_seconds", _seconds(oldest_at, now), thresholds.outbox_lag_seconds)]


async def _circuits(hub: str, thresholds: Thresholds, now: datetime) -> list[Reading]:
    watched = [one for one in dependencies().dependencies.values() if one.circuit.enabled]
    return list(await asyncio.gather(*(_circuit(hub, one, thresholds, now) for one in watched)))


async def _circuit(hub: str, dependency: Dependency, thresholds: Thresholds, now: datetime) -> Reading:
    breaker = await CircuitEntity(hub, dependency.name).read()
    opened_at = breaker.opened_at if breaker.state in _CLOSED_TO_CALLS else None
    name = f"circuit_open_seconds:{dependency.name}"
    return Reading(name, _seconds(opened_at, now), thresholds.circuit_open_seconds)


def _seconds(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())
