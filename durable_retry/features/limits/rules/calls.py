"""Who is told that a slot is free, where all slots are lent by the entity `call_limiter`.

Those who wait there need not ask in time. A slot comes with the names of those that are next (`Slot.calls`),
and whoever gives it back tells them, for entities send no events. Where fewer come than slots are free, such
as when those that were called have left, the entity starts an orchestration that tells more. What nobody
comes for is noticed by the entity itself, which sends itself a signal (`next_look`): those it had called are
taken for gone, and each time four times as many are called as before.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Final

from durable_retry.base.json_forms import from_ms, to_ms
from durable_retry.features.limits.rules.fair import KEPT_PLACES, Place
from durable_retry.features.limits.rules.state import Limiter

KEPT_LINE: Final = 1_000
"""Waiters without a place that a state remembers, about 36 KB: they are called when no place is left."""
MOST_MISSED: Final = 3
"""No more are called after so many looks at which nobody had come."""
_GROWTH: Final = 4
LEAST_TOLD_SECONDS: Final = 120.0
"""One that will be told of a free slot keeps its place, and does not ask by itself, for so long at least."""


def calls_of(limiter: Limiter, own: Place) -> tuple[Limiter, tuple[str, ...] | None]:
    """Choose who is told when the slot that an attempt is to get is given back.

    As many are called as there are slots, so that one that does not come leaves no slot free for long.
    """
    if own.waiter is None:
        return limiter, None
    wanted = max(limiter.pool, 1) * _GROWTH ** (limiter.missed or 0) - limiter.called.total()
    limiter, calls = _with_called(limiter, wanted)
    return limiter, calls or None


def successors(limiter: Limiter) -> tuple[Limiter, tuple[str, ...]]:
    """Call as many as slots are free for which nobody comes: who comes is called, or asks soon by itself."""
    soon_ms = to_ms(_now(limiter) + limiter.patience)
    coming = sum(1 for place in limiter.places if place.is_called or place.asks_ms <= soon_ms)
    return _with_called(limiter, limiter.free - coming)


def look(limiter: Limiter, received_at: datetime) -> tuple[Limiter, tuple[str, ...]]:
    """Look after free slots; call others where nobody came for them."""
    limiter, now = limiter.at(received_at)
    limiter, missed = replace(limiter, looks_at=None), limiter.missed or 0
    if limiter.free <= 0 or not limiter.is_unused(limiter.moved_at, now):
        return replace(limiter, missed=max(missed - 1, 0) or None), ()
    left = tuple(place for place in limiter.places if not place.is_called)
    gone = [place.waiter for place in limiter.places if place.is_called and place.waiter]
    # Their messages may be late, so they are told once more, after all others.
    line = (*limiter.line, *gone)[:KEPT_LINE] if missed == 0 else limiter.line
    limiter = replace(limiter, places=left, line=line, missed=min(missed + 1, MOST_MISSED))
    return _with_called(limiter, limiter.free * _GROWTH ** (missed + 1))


def next_look(limiter: Limiter) -> tuple[Limiter, datetime | None]:
    """Return when the entity is to look; None where nobody waits to be told, and where it looks before."""
    if not limiter.line and all(place.waiter is None for place in limiter.places):
        return replace(limiter, missed=None), None
    now = _now(limiter)
    comes = limiter.free > 0 and (limiter.line or limiter.called or any(_callable(limiter)))
    at = now + limiter.patience if comes else limiter.leases.first_end(now)
    if at is None or (limiter.looks_at is not None and now < limiter.looks_at <= at):
        return limiter, None
    return replace(limiter, looks_at=at), at


def _now(limiter: Limiter) -> datetime:
    return limiter.clock or from_ms(0)


def _callable(limiter: Limiter) -> Iterator[Place]:
    """Yield those that may be called, in their order, within the bounds of their keys."""
    now, called, lent = _now(limiter), limiter.called, limiter.lent_by_key
    for place in limiter.places:
        key = place.limit_key
        if place.waiter and not place.is_called and called[key] < limiter.room_of(key, lent, now):
            called[key] += 1
            yield place


def _with_called(limiter: Limiter, wanted: int) -> tuple[Limiter, tuple[str, ...]]:
    """Call so many of those that wait: those that have a place, then those behind, who get one by it."""
    called = list(islice(_callable(limiter), max(wanted, 0)))
    names = {place.name for place in called}
    places = [replace(place, is_called=True) if place.name in names else place for place in limiter.places]
    behind = limiter.line[: max(min(wanted - len(called), KEPT_PLACES - len(places)), 0)]
    now_ms = to_ms(_now(limiter))
    until_ms = now_ms + round(LEAST_TOLD_SECONDS * 1_000)
    places += (Place(now_ms, "", until_ms, waiter=waiter, is_called=True) for waiter in behind)
    calls = (*(place.waiter for place in called if place.waiter), *behind)
    return replace(limiter, places=tuple(places), line=limiter.line[len(behind) :]), calls
