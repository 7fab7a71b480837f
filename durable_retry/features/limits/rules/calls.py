"""Who is told that a slot is free, where all slots are lent by the entity `call_limiter`.

Those who wait there need not ask in time. A slot comes with the names of those that are next (`Slot.calls`),
and whoever gives it back tells them, for entities send no events. Where fewer come than slots are free, such
as when those that were called have left, the entity starts an orchestration that tells more. Who is told and
does not ask is noticed by the entity itself, which sends itself a signal (`next_look`): they are taken for
gone, and so many more are called that as many come as slots are free.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Final

from durable_retry.base.json_forms import from_ms, to_ms
from durable_retry.features.limits.rules.fair import KEPT_PLACES, Place
from durable_retry.features.limits.rules.state import LATE, LEAST_PART, Limiter

KEPT_LINE: Final = 1_000
"""Waiters without a place that a state remembers, about 36 KB: they are called when no place is left."""
_GONE_AT_LEAST: Final = 13
"""Where nobody came at all, so many count as gone: the part of those that come is a fourth of before."""
LEAST_TOLD_SECONDS: Final = 120.0
"""One that will be told of a free slot keeps its place, and does not ask by itself, for so long at least."""


def calls_of(limiter: Limiter, own: Place) -> tuple[Limiter, tuple[str, ...] | None]:
    """Choose who is told when the slot that an attempt is to get is given back.

    As many are called as there are slots, so that one that does not come leaves no slot free for long, and
    one at least.
    """
    if own.waiter is None:
        return limiter, None
    wanted = int(max(limiter.pool, 1) / limiter.sure_part) - limiter.called.total()
    limiter, calls = _with_called(limiter, max(wanted, 1), own.name)
    return limiter, calls or None


def successors(limiter: Limiter) -> tuple[Limiter, tuple[str, ...]]:
    """Call as many as slots are free for which nobody comes: who is told does, or asks soon by itself."""
    soon_ms, part = to_ms(_now(limiter) + limiter.patience), limiter.sure_part
    told = sum(1 for place in limiter.places if place.is_told)
    soon = sum(1 for place in limiter.places if not place.is_told and place.asks_ms <= soon_ms)
    return _with_called(limiter, int((limiter.free - soon) / part) - told)


def look(limiter: Limiter, received_at: datetime) -> tuple[Limiter, tuple[str, ...]]:
    """Take those that were told and have not asked for gone; call others for what they left free."""
    limiter, now = limiter.at(received_at)
    gone, left = list[Place](), list[Place]()
    for place in limiter.live_places(now):
        (gone if place.is_told and place.asks_ms <= to_ms(now) else left).append(place)
    # Their messages may be late, so those that were not behind are told once more, after all others.
    again = (place.waiter for place in gone if place.name and place.waiter)
    line = (*limiter.line, *again)[:KEPT_LINE]
    is_unused = gone and limiter.free > 0 and limiter.is_unused(limiter.moved_at, now)
    limiter = limiter.seen(gone=max(len(gone), _GONE_AT_LEAST) if is_unused else len(gone))
    seen = replace(limiter, looks_at=None, places=tuple(left), line=line)
    return _with_all_told(seen) if seen.came == LEAST_PART else successors(seen)


def _with_all_told(limiter: Limiter) -> tuple[Limiter, tuple[str, ...]]:
    """Tell all that wait, and forget them: those that are not gone ask again."""
    left = tuple(place for place in limiter.places if place.is_called or place.waiter is None)
    told = (place.waiter for place in limiter.places if place.waiter and not place.is_called)
    return replace(limiter, places=left, line=(), came=None), (*told, *limiter.line)


def next_look(limiter: Limiter) -> tuple[Limiter, datetime | None]:
    """Return when the entity is to look; None where nobody waits to be told, and where it looks before."""
    if not limiter.line and all(place.waiter is None for place in limiter.places):
        return replace(limiter, came=None), None
    now = _now(limiter)
    told = [from_ms(place.asks_ms) for place in limiter.places if place.is_told]
    may_come = limiter.line or any(chain(_callable(limiter), _promised(limiter)))
    comes = told or (limiter.free > 0 and may_come)
    soon = min((end for end in told if end > now), default=now + limiter.patience)
    at = soon if comes else limiter.leases.first_end(now)
    planned = limiter.looks_at
    # One that is late is under way, and each message until it comes would else ask for another.
    if at is None or (planned is not None and planned <= at and now < planned + LATE):
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


def _promised(limiter: Limiter) -> Iterator[Place]:
    """Yield those that the end of a lease is to tell, within the bounds of their keys."""
    now, called, lent = _now(limiter), limiter.called, limiter.lent_by_key
    for place in limiter.places:
        if place.told_by and called[place.limit_key] <= limiter.room_of(place.limit_key, lent, now):
            yield place


def _with_called(limiter: Limiter, wanted: int, told_by: str = "") -> tuple[Limiter, tuple[str, ...]]:
    """Call so many of those that wait: those that have a place, then those behind, who get one by it.

    Args:
        told_by: The lease whose end tells them; "" where they are told by now.
    """
    called = list(islice(_callable(limiter), max(wanted, 0)))
    behind = limiter.line[: max(min(wanted - len(called), KEPT_PLACES - len(limiter.places)), 0)]
    if not told_by:
        # The holder of a lease may be gone: those that it is to tell take what nobody else takes.
        called += islice(_promised(limiter), max(wanted - len(called) - len(behind), 0))
    now = _now(limiter)
    now_ms, until_ms = to_ms(now), to_ms(now + timedelta(seconds=LEAST_TOLD_SECONDS))
    new = (Place(now_ms, "", until_ms, waiter=waiter) for waiter in behind)
    calls = (*(place.waiter for place in called if place.waiter), *behind)
    told = frozenset(calls)

    def after(place: Place) -> Place:
        if place.waiter not in told:
            return place
        return replace(place, told_by=told_by) if told_by else place.told(now + limiter.patience)

    places = tuple(after(place) for place in (*limiter.places, *new))
    return replace(limiter, places=places, line=limiter.line[len(behind) :]), calls
