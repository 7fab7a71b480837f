"""Alerts: raised once when something is over its threshold, and told once more when it is not any more."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from engine.instants import from_rfc3339, to_rfc3339


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From when on a person should know; 0 switches one off.

    Attributes:
        dead_letters: Open ones, more than so many.
        dead_letter_age_seconds: The oldest open one, older than this.
        outbox_lag_seconds: The event that waits longest to be sent, longer than this.
        circuit_open_seconds: A circuit that lets nothing through, for longer than this.
    """

    dead_letters: float = 100.0
    dead_letter_age_seconds: float = 86_400.0
    outbox_lag_seconds: float = 300.0
    circuit_open_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One thing that is watched, as it is now.

    Attributes:
        condition: Its name: `dead_letters`, `dead_letter_age_seconds`, `outbox_lag_seconds`, or
            `circuit_open_seconds:` and the dependency.
        value: In the unit that the name ends in.
        threshold: See `Thresholds`.
    """

    condition: str
    value: float
    threshold: float

    @property
    def is_over(self) -> bool:
        """Whether a person should know."""
        return 0 < self.threshold < self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """What was last said of one condition.

    Attributes:
        condition: See `Reading`.
        is_raised: Whether it was raised, or cleared.
        since: When.
        value: At that moment.
        threshold: At that moment.
        is_told: Whether everyone was told who should be.
    """

    condition: str
    is_raised: bool
    since: datetime
    value: float
    threshold: float
    is_told: bool = False

    @property
    def id(self) -> str:
        """Names this very change: telling it twice is telling it once."""
        state = "raised" if self.is_raised else "cleared"
        return f"alert-{self.condition}-{state}-{self.since:%Y%m%dT%H%M%S.%fZ}"

    def told(self) -> Self:
        """Return it as told."""
        return replace(self, is_told=True)

    def document(self) -> dict[str, Any]:
        """Give what a log line and a webhook say."""
        return {
            "id": self.id,
            "condition": self.condition,
            "state": "raised" if self.is_raised else "cleared",
            "value": self.value,
            "threshold": self.threshold,
            "at": to_rfc3339(self.since),
        }

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "condition": self.condition,
            "is_raised": self.is_raised,
            "since": to_rfc3339(self.since),
            "value": self.value,
            "threshold": self.threshold,
            "is_told": self.is_told,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(**(dict(data) | {"since": from_rfc3339(data["since"])}))


def alert_changes(known: Mapping[str, Alert], readings: Iterable[Reading], now: datetime) -> list[Alert]:
    """Return what is to be said: of conditions that are over and were not, and the other way round.

    Args:
        known: What was last said, by condition.
        readings: As it is now. A raised condition that is not among them is cleared: nobody watches it any
            more.
        now: Aware UTC instant.
    """
    changes = []
    watched = {reading.condition: reading for reading in readings}
    for condition, reading in watched.items():
        last = known.get(condition)
        if reading.is_over is not (last is not None and last.is_raised):
            changes.append(_alert(reading, now))
    for condition, last in known.items():
        if last.is_raised and condition not in watched:
            changes.append(_alert(Reading(condition, 0.0, last.threshold), now))
    return changes


def _alert(reading: Reading, now: datetime) -> Alert:
    return Alert(
        condition=reading.condition,
        is_raised=reading.is_over,
        since=now,
        value=reading.value,
        threshold=reading.threshold,
    )
