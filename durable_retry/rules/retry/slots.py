"""Slots: what an attempt may need beside its circuit, which an entity of the fleet grants.

A feature bounds the attempts at a dependency (`Plugin.limits`) and says what one needs, which goes to its
entity as it is.

    attempt ── its worker may start it ──> starts
            └─ NeedsSlot ──> entity ──> Slot ──> starts, then gives it back
                                    └─> SlotPostponed ──> waits ──> asks again, or starts in its turn
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

from durable_retry.base.json_forms import NOT_STORED, JsonShape, MsInstant
from durable_retry.base.names import Priority

LEASE_MARGIN_SECONDS: Final = 60.0
"""Added to an attempt's time limit for its lease. Only a crash lets a lease expire; others are given back."""
DOOR_SECONDS: Final = 1.0
"""An attempt comes to its worker so long before its turn and waits there, where that is exact."""
TURN_LASTS: Final = timedelta(seconds=2)
"""A turn that is over for longer is void: its attempt asks again."""
_ROUNDED_SECONDS: Final = 0.001  # of answers


def is_valid(turn_at: datetime | None, now: datetime) -> bool:
    """Whether a turn is not over; None is none."""
    return turn_at is not None and now <= turn_at + TURN_LASTS


@dataclass(frozen=True, slots=True)
class NeedsSlot(JsonShape):
    """The worker may start no more of its own accord; only the entity grants more."""

    settings: Mapping[str, Any]  # what bounds it, which goes with the request
    kind: Literal["needs_slot"] = "needs_slot"


@dataclass(frozen=True, slots=True)
class Slot(JsonShape):
    """The attempt may start."""

    lease_id: str | None = None  # to be given back after the attempt; None when there is nothing to give back
    # When the request asked; given back with the lease. None when there is nothing to give back.
    asked_at: MsInstant | None = None
    # Until its start by the rate; None without a rate, and where that was reserved before.
    turn_seconds: float | None = None
    lasted_seconds: float | None = None  # of its attempt, when that is over; None where none was made
    # The instances that are told, when it is given back, that a slot is free.
    calls: tuple[str, ...] | None = None
    # The limiter did not answer, so the attempt goes without it.
    fail_open: Annotated[bool, NOT_STORED] = False
    kind: Literal["slot"] = "slot"


@dataclass(frozen=True, slots=True)
class SlotPostponed(JsonShape):
    """The attempt waits."""

    seconds: float
    reason: str  # the limit that is reached, in a few words
    turn_seconds: float | None = None  # until the start that is reserved for it; None when it asks again
    # How many attempts that wait for a slot are older; None when it does not wait for one.
    ahead: int | None = None
    kind: Literal["postponed"] = "postponed"


type SlotAnswer = Slot | SlotPostponed
"""The answer of `acquire`."""


@dataclass(frozen=True, slots=True)
class SlotRequest(JsonShape):
    """Call `acquire` of the entity `call_limiter`."""

    lease_id: str  # one per attempt; while it is lent, a request for it gets the same lease
    lease_seconds: float  # after that the slot is free again, whatever became of the attempt
    settings: Mapping[str, Any]  # as in `NeedsSlot`
    # When the orchestration asked, by its replay-safe time, which tells a new request from one that is
    # delivered again (`base.asks`).
    asked_at: MsInstant
    due_at: MsInstant  # when the attempt was first due: the oldest goes first
    reserved: bool = False  # whether a start is reserved for it, and not over
    has_waited: bool = False  # whether it was postponed before
    # A start later than this is of no use: none is reserved. None means any.
    latest_seconds: float | None = None
    priority: Priority | None = None  # None is `normal`
    limit_key: str | None = None  # whose share it uses; None without one
    waiter: str | None = None  # the instance that is told when a slot is free; None for one that asks again
    is_signal: bool | None = None  # whether the answer is read from the state, see `answer_to`; None for not


def as_heard(answer: SlotAnswer, asked_at: datetime, now: datetime) -> SlotAnswer:
    """Return an answer as it is heard: a turn that was long under way counts from its call.

    After a restart it would come beside those that are reserved since.

    Args:
        asked_at: When the call was made that was answered: those before it may have failed.
    """
    late = now - asked_at
    if answer.turn_seconds is None or late <= TURN_LASTS:
        return answer
    late_seconds = late.total_seconds()
    heard = replace(answer, turn_seconds=answer.turn_seconds - late_seconds)
    if isinstance(heard, Slot):
        return heard
    return replace(heard, seconds=max(heard.seconds - late_seconds, 0.0))


def within_deadline(answer: SlotAnswer, request: SlotRequest, now: datetime) -> SlotAnswer:
    """Return an answer as it is heard: a wait that ended in time before the deadline still does."""
    latest = request.latest_seconds
    if isinstance(answer, Slot) or latest is None or answer.seconds > latest + _ROUNDED_SECONDS:
        return answer
    left_seconds = latest - (now - request.asked_at).total_seconds() - _ROUNDED_SECONDS
    return replace(answer, seconds=max(min(answer.seconds, left_seconds), 0.0))


@dataclass(frozen=True, slots=True)
class Leaving(JsonShape):
    """Signal `leave`: an attempt waits no more, since it has started without the limiter, or never will."""

    lease_id: str
    is_gone: bool | None = None  # whether it will never start; None for not
    waiter: str | None = None  # the instance that is told of no free slot any more; None for none
