"""Answers to requests that came as signals, which return nothing: the state keeps them to be read."""

from dataclasses import dataclass, replace
from typing import Final

from durable_retry.base.json_forms import JsonRow

_KEPT: Final = 128
"""Answers that a state keeps, about 6 KB."""
_READ_WITHIN_MS: Final = 60_000
"""The worker that asked reads its answer within a second, unless it is dead."""


@dataclass(frozen=True, slots=True)
class Told(JsonRow):
    """One answer, with instants in milliseconds since 1970."""

    name: str  # of the lease
    asked_ms: int
    told_ms: int
    seconds: float | None = None  # until it asks again; None where it may start
    turn_seconds: float | None = None  # until the start that is reserved for it; None without one


def with_told(kept: tuple[Told, ...] | None, told: Told) -> tuple[Told, ...]:
    """Return the answers with one more, which replaces the answer for its lease."""
    is_read = told.told_ms - _READ_WITHIN_MS
    others = (each for each in kept or () if each.name != told.name and each.told_ms >= is_read)
    return (*others, told)[-_KEPT:]


def with_told_again(kept: tuple[Told, ...] | None, name: str, asked_ms: int, now_ms: int) -> tuple[Told, ...]:
    """Return the answers after an attempt that has its slot asked again: its turn stays."""
    granted = (told for told in kept or () if told.name == name and told.seconds is None)
    told = next(granted, Told(name, asked_ms, now_ms))
    return with_told(kept, replace(told, asked_ms=max(told.asked_ms, asked_ms)))


def without_told(kept: tuple[Told, ...] | None, name: str) -> tuple[Told, ...] | None:
    """Return the answers without that for a lease; None when none is left."""
    return tuple(told for told in kept or () if told.name != name) or None
