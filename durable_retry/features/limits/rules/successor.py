"""Who is told of a free slot in place of those that were called for it and have left."""

from dataclasses import replace

from durable_retry.base.json_forms import from_ms, to_ms
from durable_retry.features.limits.rules.limiter import UNUSED, Limiter


def with_successor(limiter: Limiter) -> tuple[Limiter, str | None]:
    """Call whoever is next when a slot is free and nobody will come for it; return who is to be told.

    Those that were called when slots were granted have left, and nobody asks soon by itself.
    """
    soon_ms = to_ms((limiter.clock or from_ms(0)) + UNUSED)
    if any(place.is_called or place.asks_ms <= soon_ms for place in limiter.places):
        return limiter, None
    called = next((place for place in limiter.places if place.waiter), None)
    if called is None:
        return limiter, None
    places = tuple(replace(place, is_called=True) if place is called else place for place in limiter.places)
    return replace(limiter, places=places), called.waiter
