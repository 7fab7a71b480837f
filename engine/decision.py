"""The words of a decision: what the circuit and others say, and what can follow."""

from dataclasses import dataclass
from datetime import datetime

from engine.vocabulary import Category, DeadLetterReason


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitView:
    """What the dependency's circuit says, as last seen.

    Attributes:
        refuses: Whether it lets no attempt through now (open, forced open, half open with no permit left, or
            paused on the dependency's own wish).
        retry_at: When it may let one through; None when it does not know (forced open without an end).
            As it stands in the circuit: `decide` spreads the waiting operations over the time after it.
        reason: Why it refuses, e.g. `failure ratio 0.8 over 20 calls`; "" when it does not.
        waiting: How many operations wait for it, as far as known.
    """

    refuses: bool = False
    retry_at: datetime | None = None
    reason: str = ""
    waiting: int = 0


CLOSED = CircuitView()
"""A circuit that is in nobody's way."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A further lower bound for the next attempt, e.g. an empty retry budget.

    Attributes:
        until: No attempt before this.
        reason: For a person, e.g. `retry budget of payments is spent`.
    """

    until: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """The attempt succeeded."""


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Make another attempt.

    Attributes:
        at: When, never before now.
        delay_seconds: From now until then.
        reasons: Why then, each a few words, in the order in which they were weighed.
    """

    at: datetime
    delay_seconds: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WaitForCircuit:
    """The circuit refused: ask it again at `until`, or when told that it closed. No attempt is counted."""

    until: datetime
    delay_seconds: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The operation will not succeed without a person.

    Attributes:
        category: Of the last failure, or `deadline_exceeded`.
        reason: The contract's name.
        detail: One or two sentences for a person.
    """

    category: Category
    reason: DeadLetterReason
    detail: str


type Decision = Done | RetryAt | WaitForCircuit | DeadLetter
