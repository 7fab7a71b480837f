"""Asks that an entity has answered, so that a message which comes again, late or overtaken, changes nothing.

An orchestration asks an entity for a lease, one ask after the other, each with the instant at which it asked:

    ask(lease, at=1) ──> granted ──> given back ──> ask(lease, at=1) again: a repetition, nobody waits for it
                                               └──> ask(lease, at=2): a new one

The platform neither orders nor deduplicates messages to entities (docs/decisions/entity-messages.md). Without
the memory, the repetition would take a lease that nobody gives back before it expires.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from durable_retry.base.json_forms import JsonRow, MsInstant, to_ms

KEPT_ASKS: Final = 128
"""Answered asks that a state remembers, about 7 KB. A repetition that comes after more others is not
noticed: it costs a lease that is held until it expires, or one turn of the rate."""


@dataclass(frozen=True, slots=True)
class Ask(JsonRow):
    """The latest ask for one lease that was answered."""

    lease_id: str
    asked_at: MsInstant  # when the orchestration asked, by its replay-safe time


def is_repeated(answered: tuple[Ask, ...], lease_id: str, asked_at: datetime) -> bool:
    """Whether this ask, or a later one for the same lease, was answered."""
    return any(ask.lease_id == lease_id and to_ms(asked_at) <= to_ms(ask.asked_at) for ask in answered)


def with_ask(
    answered: tuple[Ask, ...], lease_id: str, asked_at: datetime | None, kept: int = KEPT_ASKS
) -> tuple[Ask, ...]:
    """Return the memory with an answered ask, in place of earlier ones for its lease; the oldest go first."""
    if asked_at is None or is_repeated(answered, lease_id, asked_at):
        return answered
    others = tuple(ask for ask in answered if ask.lease_id != lease_id)
    return (*others, Ask(lease_id, asked_at))[-kept:]
