"""What is watched, read at a cost that depends on what is open, pending or configured only."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from engine.alert import Reading, Thresholds
from engine.circuit import Breaker, CircuitState
from stores.circuit_entity import CircuitEntity
from stores.configuration import dependencies
from stores.dead_letter_tally import Summary, read_summary
from stores.outbox_index import list_notes

_CLOSED_TO_CALLS: Final = frozenset({CircuitState.OPEN, CircuitState.FORCED_OPEN, CircuitState.HALF_OPEN})
"""Half open counts: a dependency whose probes fail is in it again and again, and is still down."""

_MANY_NOTES: Final = 999


@dataclass(frozen=True, slots=True)
class Watched:
    """Everything that is watched, as it is now.

    Attributes:
        dead_letters: The open ones.
        outbox_lag_seconds: For how long the oldest pending event has waited; 0 when none is pending.
        circuits: By dependency, of those that have one.
        now: When that was.
    """

    dead_letters: Summary
    outbox_lag_seconds: float
    circuits: Mapping[str, Breaker]
    now: datetime

    def readings(self, thresholds: Thresholds) -> list[Reading]:
        """Compare everything that has a threshold with it.

        Args:
            thresholds: From when on a person should know.
        """
        waiting = self.dead_letters.total
        return [
            Reading("dead_letters", float(waiting.count), thresholds.dead_letters),
            Reading(
                "dead_letter_age_seconds", self.dead_letter_age_seconds, thresholds.dead_letter_age_seconds
            ),
            Reading("outbox_lag_seconds", self.outbox_lag_seconds, thresholds.outbox_lag_seconds),
            *(
                Reading(
                    f"circuit_open_seconds:{name}",
                    self._open_seconds(breaker),
                    thresholds.circuit_open_seconds,
                )
                for name, breaker in self.circuits.items()
            ),
        ]

    @property
    def dead_letter_age_seconds(self) -> float:
        """Age of the oldest open dead letter; 0 when there is none."""
        return _seconds(self.dead_letters.total.oldest_at, self.now)

    def _open_seconds(self, breaker: Breaker) -> float:
        return _seconds(breaker.opened_at if breaker.state in _CLOSED_TO_CALLS else None, self.now)


async def read_all(hub: str, now: datetime) -> Watched:
    """Read everything that is watched.

    Args:
        hub: Configuration of the durable client.
        now: Aware UTC instant.

    Raises:
        TaskHubUnavailableError: A circuit could not be read.
    """
    letters, lag_seconds, circuits = await asyncio.gather(read_summary(), _outbox(now), _circuits(hub))
    return Watched(letters, lag_seconds, circuits, now)


async def _outbox(now: datetime) -> float:
    """Look at the operations with pending events; beyond a thousand of them the number alone says enough."""
    notes, _ = await list_notes(_MANY_NOTES, None)
    return _seconds(min((note.noted_at for note in notes), default=None), now)


async def _circuits(hub: str) -> dict[str, Breaker]:
    names = [one.name for one in dependencies().dependencies.values() if one.circuit.enabled]
    breakers = await asyncio.gather(*(CircuitEntity(hub, name).read() for name in names))
    return dict(zip(names, breakers, strict=True))


def _seconds(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())
