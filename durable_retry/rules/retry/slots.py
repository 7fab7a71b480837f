"""Slots: what an attempt may need beside its circuit's permit. An entity grants them for the whole fleet.

A feature bounds the attempts at a dependency (`Plugin.limits`). Its worker says what an attempt needs
(`NeedsSlot`), and its entity gets that as it is.

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
"""An attempt goes to its worker so long before its turn and waits there, since timers there are exact."""
TURN_LASTS: Final = timedelta(seconds=2)
"""A turn that has been over for longer is void: its attempt asks again, unless the only worker has room."""
_ROUNDED_SECONDS: Final = 0.001  # of answers


def is_valid(turn_at: datetime | None, now: datetime) -> bool:
    """Whether an attempt may still start in its turn; None is no turn."""
    return turn_at is not None and now <= turn_at + TURN_LASTS


@dataclass(frozen=True, slots=True)
class NeedsSlot(JsonShape):
    """The worker may start no more within its share; only the entity grants more."""

    settings: Mapping[str, Any]  # what bounds it, which goes with the request
    freed: Any = None  # as in `SlotRequest`
    kind: Literal["needs_slot"] = "needs_slot"


@dataclass(frozen=True, slots=True)
class Slot(JsonShape):
    """The attempt may start."""

    lease_id: str | None = None  # to be given back after the attempt; None when there is nothing to give back
    # When it was asked for; goes back with the lease. None when there is nothing to give back.
    asked_at: MsInstant | None = None
    # Seconds until the start that the rate allows; None without a rate, and if that was reserved before.
    turn_seconds: float | None = None
    is_crowded: bool | None = None  # whether others wait for the rate, so that no share of it is free
    lasted_seconds: float | None = None  # how long its attempt took, once over; None if none was made
    # The instances to be told that a slot is free, when it is given back.
    calls: tuple[str, ...] | None = None
    # The limiter did not answer, so the attempt goes without it.
    fail_open: Annotated[bool, NOT_STORED] = False
    kind: Literal["slot"] = "slot"


@dataclass(frozen=True, slots=True)
class SlotPostponed(JsonShape):
    """The attempt waits."""

    seconds: float
    reason: str  # the limit that is reached, in a few words
    turn_seconds: float | None = None  # until the start that is reserved for it; None if it has to ask again
    # How many attempts before it wait for a slot; None if it does not wait for one.
    ahead: int | None = None
    kind: Literal["postponed"] = "postponed"


type SlotAnswer = Slot | SlotPostponed
"""The answer of `acquire`."""


@dataclass(frozen=True, slots=True)
class SlotRequest(JsonShape):
    """Call `acquire` of the entity `call_limiter`."""

    lease_id: str  # one per attempt; while it is lent, a request for it gets the same lease
    lease_seconds: float  # after so long the slot is free again, whatever became of the attempt
    settings: Mapping[str, Any]  # as in `NeedsSlot`
    # When the orchestration asked, by its replay-safe time. That distinguishes a new request from one that
    # is delivered again (`base.asks`).
    asked_at: MsInstant
    due_at: MsInstant  # when the attempt was first due: the oldest goes first
    reserved: bool = False  # whether a start is reserved for it, and not over
    has_waited: bool = False  # whether it was postponed before
    # Seconds after which a start is of no use, so that none is reserved. None means any.
    latest_seconds: float | None = None
    priority: Priority | None = None  # None is `normal`
    limit_key: str | None = None  # whose share it uses; None without one
    waiter: str | None = None  # the instance to be told when a slot is free; None if it asks by itself
    is_signal: bool | None = None  # whether the answer is read from the state, see `answer_to`; None for not
    freed: Any = None  # the slot of which it was told: its `give_back` may be lost; None for none


def as_heard(answer: SlotAnswer, asked_at: datetime, now: datetime) -> SlotAnswer:
    """Return an answer as it counts when it comes late: its turn is counted from the call.

    Otherwise turns from before a restart would fall together with those that were reserved since.

    Args:
        asked_at: When the call was made that was answered; earlier calls may have failed.
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
    """Return an answer as it counts when it comes late: a wait that fitted the deadline still does."""
    latest = request.latest_seconds
    if isinstance(answer, Slot) or latest is None or answer.seconds > latest + _ROUNDED_SECONDS:
        return answer
    left_seconds = latest - (now - request.asked_at).total_seconds() - _ROUNDED_SECONDS
    return replace(answer, seconds=max(min(answer.seconds, left_seconds), 0.0))


@dataclass(frozen=True, slots=True)
class Leaving(JsonShape):
    """Signal `leave`: an attempt waits no more. It has started without the limiter, or never will."""

    lease_id: str
    is_gone: bool | None = None  # whether it will never start; None for not
    waiter: str | None = None  # the instance that need not be told of a free slot any more; None for none
