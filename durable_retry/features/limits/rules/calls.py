"""Telling attempts that a slot is free, or that their turn comes.

Attempts that wait are told, in place of asking again and again, unless there are a rate and bounds of keys.
A slot comes with the names of the next ones (`Slot.calls`), and who gives it back tells them, since entities
send no events: its attempt at the end, or its worker at once, where there is room in its share. If fewer come
than slots or turns are free, for instance because they have left, the entity starts an orchestration that
tells more. The entity also sends itself a signal to look (`next_look`) who was told and has not asked. It
takes those for gone, and calls so many others that as many should come as slots or turns are free.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain, islice
from math import inf
from typing import Final

from durable_retry.base.json_forms import from_ms, to_ms
from durable_retry.features.limits.rules.fair import KEPT_PLACES, Place
from durable_retry.features.limits.rules.state import LATE, LEAST_PART, Limiter

KEPT_LINE: Final = 1_000
"""Instances without a place that a state remembers, about 36 KB. They are called after those with a place."""
_GONE_AT_LEAST: Final = 13
"""If none came at all, at least so many count as gone: the part that should come falls to a fourth."""
LEAST_TOLD_SECONDS: Final = 120.0
"""An attempt that waits to be told keeps its place for so long at least, before it asks by itself."""


def calls_of(limiter: Limiter, own: Place) -> tuple[Limiter, tuple[str, ...] | None]:
    """Choose which attempts are told when the slot that `own` gets now is given back.

    In all as many are called as there are slots, and one at least. So one that does not come leaves no slot
    free for long.
    """
    if own.waiter is None:
        return limiter, None
    wanted = int(max(limiter.pool, 1) / limiter.sure_part) - limiter.called.total()
    limiter, calls = _with_called(limiter, max(wanted, 1), own.name)
    return limiter, calls or None


def successors(limiter: Limiter) -> tuple[Limiter, tuple[str, ...]]:
    """Call attempts for what is free, beside those that were told already or ask soon by themselves."""
    if not limiter.tells_somebody:
        return limiter, ()
    soon_ms, part = _soon_ms(limiter), limiter.sure_part
    told = sum(1 for place in limiter.places if place.is_told)
    soon = sum(1 for place in limiter.places if not place.is_told and place.asks_ms <= soon_ms)
    wanted = int((limiter.free - soon) / part) - told
    waiting = len(limiter.places) - told - soon + len(limiter.line)
    return _with_called(limiter, wanted) if wanted >= min(limiter.least_called, waiting) else (limiter, ())


def look(limiter: Limiter, received_at: datetime) -> tuple[Limiter, tuple[str, ...]]:
    """Take attempts for gone that were told and have not asked; call others for the slots that are free."""
    limiter, now = limiter.at(received_at)
    gone, left = list[Place](), list[Place]()
    for place in limiter.live_places(now):
        (gone if place.is_told and place.asks_ms <= to_ms(now) else left).append(place)
    # Their messages may be late, so those that were not in the line are told once more, after all others.
    again = (place.waiter for place in gone if place.name and place.waiter)
    line = (*limiter.line, *again)[:KEPT_LINE]
    is_unused = gone and limiter.free > 0 and limiter.is_unused(limiter.taken_at, now)
    limiter = limiter.seen(gone=max(len(gone), _GONE_AT_LEAST) if is_unused else len(gone))
    # Only one of two planned looks plans the next, else there would be ever more.
    planned = limiter.looks_at
    looks_at = planned if planned is not None and planned > now else None
    seen = replace(limiter, looks_at=looks_at, places=tuple(left), line=line)
    return _with_all_told(seen) if seen.came == LEAST_PART else successors(seen)


def _with_all_told(limiter: Limiter) -> tuple[Limiter, tuple[str, ...]]:
    """Tell all that wait, and forget them: those that still exist ask again."""
    left = tuple(place for place in limiter.places if place.is_called or place.waiter is None)
    told = (place.waiter for place in limiter.places if place.waiter and not place.is_called)
    return replace(limiter, places=left, line=(), came=None), (*told, *limiter.line)


def next_look(limiter: Limiter) -> tuple[Limiter, datetime | None]:
    """Return when the entity is to look; None if none waits to be told, or a look is planned before."""
    if not limiter.tells_somebody:
        return replace(limiter, came=None), None
    now = _now(limiter)
    told = [from_ms(place.asks_ms) for place in limiter.places if place.is_told]
    may_come = limiter.line or any(chain(_callable(limiter), _promised(limiter)))
    comes = told or (may_come and limiter.free_slots > 0)
    unused_at = max(limiter.taken_at or now, now) + limiter.patience
    soon = min((end for end in told if end > now), default=unused_at)
    at = soon if comes else limiter.leases.first_end(now)
    planned = limiter.looks_at
    # A look that is late is on its way; without this each message until then would plan one more.
    if at is None or (planned is not None and planned <= at and now < planned + LATE):
        return limiter, None
    return replace(limiter, looks_at=at), at


def _now(limiter: Limiter) -> datetime:
    return limiter.clock or from_ms(0)


def _soon_ms(limiter: Limiter) -> float:
    """Return until when those ask that count as coming by themselves: none does while nothing is taken."""
    now = _now(limiter)
    return -inf if limiter.is_unused(limiter.taken_at, now) else to_ms(now + limiter.patience)


def _callable(limiter: Limiter) -> Iterator[Place]:
    """Yield the places that may be called, in their order, as many of each key as its bounds allow."""
    now, called, lent = _now(limiter), limiter.called, limiter.lent_by_key
    soon_ms = _soon_ms(limiter)
    for place in limiter.places:
        key, is_coming = place.limit_key, place.is_called or place.asks_ms <= soon_ms
        if place.waiter and not is_coming and called[key] < limiter.room_of(key, lent, now):
            called[key] += 1
            yield place


def _promised(limiter: Limiter) -> Iterator[Place]:
    """Yield the places that are told when a lease ends, as many of each key as its bounds allow."""
    now, called, lent = _now(limiter), limiter.called, limiter.lent_by_key
    for place in limiter.places:
        if place.told_by and called[place.limit_key] <= limiter.room_of(place.limit_key, lent, now):
            yield place


def _with_called(limiter: Limiter, wanted: int, told_by: str = "") -> tuple[Limiter, tuple[str, ...]]:
    """Call so many attempts: first those with a place, then those in the line, which get a place by that.

    Args:
        told_by: The lease whose end tells them; "" if they are told now.
    """
    called = list(islice(_callable(limiter), max(wanted, 0)))
    behind = limiter.line[: max(min(wanted - len(called), KEPT_PLACES - len(limiter.places)), 0)]
    if not told_by:
        # The attempt that should tell them may be gone, so they are told now if no others are left.
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
