"""The lane of one order key: whose turn it is, and who waits behind it.

    joined(lane, place, after)  at submission, so that a place is seen before its orchestration asks
    taken(lane, place, after)   the operation's orchestration asks for its turn; it joins if it has not yet
    left(lane, place)           the operation has ended; with a dead letter that blocks, it keeps its place
    dropped(lane, place)        its operation is gone and has not left
    released(lane, ...)         the dead letter that blocks was archived

The front of the queue has the turn, unless it has ended as a dead letter: then the lane is blocked until that
is replayed to its end, or archived. A replay finds the place of its operation, and has the turn there.

The order is that of the numbers that operations get before they are started (`Tail`). An operation also names
the one before it, if that had not ended. Where the lane has not seen that one, its join is late or lost: then
the operation waits until a look has found out what became of the one before it.

Messages to entities come twice, late and in another order (docs/decisions/entity-messages.md). So a place
names its run, which only grows: a message of an earlier run changes nothing, and the lane remembers the
latest operations that left, whose joins may come after their end. A look removes those that it has forgotten.

The queue is one text, `;operation:accepted_ms:run:number` for each place. A lane may hold 10,000 and is read
and written by each message: as a text it needs no parsing (docs/decisions/order-lanes.md).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple, Self

from durable_retry.base.json_forms import JsonRow, JsonShape, MsInstant, from_ms, to_ms
from durable_retry.base.text import counted
from durable_retry.rules.circuit.snapshot import Refused

MOST_PLACES: Final = 20_000
"""Places that a lane takes, about 1.3 MB: a message of the durable client takes 4 MiB. An operation that
comes when it is full gets a place when it asks again."""

KEPT_LEAVES: Final = 64
"""Operations that a lane remembers after they left, about 3 KB."""

# A run number is at least the milliseconds of the instant at which its start was accepted, but for rounding.
_ROUNDING_MS: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMessage(JsonShape):
    """A message of an operation to its lane."""

    order_key: str
    operation_id: str
    accepted_at: MsInstant  # or when it began, if it was submitted to begin later
    run: int = 0  # its run number; 0 before its orchestration has asked
    # Its number in the order, which only grows in a lane; None where it joins at the end.
    number: int | None = None
    # The operation before it, whose place the lane has to see first; None where there is no such.
    after: str | None = None
    # The dead letter that it ended as, if that blocks the lane; else None.
    dead_letter_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeldTurn(JsonShape):
    """How everything is held, or was lately, while an operation waits for its turn."""

    since: MsInstant
    why: str
    ended_at: MsInstant | None = None  # None while the hold goes on
    # What an attempt of it would be answered; None where a thaw lets it go.
    refused: Refused | None = None


@dataclass(frozen=True, slots=True)
class Turn(JsonShape):
    """The answer to an operation that asks for its turn."""

    has_turn: bool
    ahead: int = 0  # how many places are before its own
    front: str | None = None  # the operation in front; None when it has the turn itself
    dead_letter_id: str | None = None  # what that has ended as and blocks the lane with; None while it runs
    # The operation before it, where the lane has not seen that; else None.
    missing: str | None = None
    # Since when that operation is in front; None where it has the turn itself.
    front_since: MsInstant | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it waits, each a few words."""
        if self.missing is not None:
            return (f"{self.missing}, which was accepted before it, has not come to its order lane",)
        blocked = (
            "" if self.dead_letter_id is None else f", and ended as the dead letter {self.dead_letter_id}"
        )
        others = self.ahead - 1
        between = (f"{counted(others, 'other operation')} before it",) if others > 0 else ()
        return (f"{self.front} is in front{blocked}", *between)


class Place(NamedTuple):
    """A place in the queue, as `LaneMessage` has it."""

    operation_id: str
    accepted_ms: int
    run: int
    number: int = 0  # 0 without one

    @classmethod
    def of(cls, message: LaneMessage) -> Self:
        return cls(message.operation_id, to_ms(message.accepted_at), message.run, message.number or 0)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a place of a queue."""
        operation_id, accepted_ms, run, number = text.split(":")
        return cls(operation_id, int(accepted_ms), int(run), int(number))

    @property
    def accepted_at(self) -> datetime:
        return from_ms(self.accepted_ms)

    def is_of(self, other: Self) -> bool:
        """Whether a message about the other place means this one: of the same run, or of an earlier one."""
        # A message without a run is about an operation that has not asked: only exactly its place is meant.
        return self.run <= other.run if other.run else self == other

    def __str__(self) -> str:
        return f";{self.operation_id}:{self.accepted_ms}:{self.run}:{self.number}"


@dataclass(frozen=True, slots=True)
class Leave(JsonRow):
    """A run that has left."""

    operation_id: str
    run: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane(JsonShape):
    """The state of a lane; an empty lane has none."""

    order_key: str
    queue: str = ""  # see the head of this module
    # Dead letters of the operations that keep their places, by operation.
    dead_letters: Mapping[str, str] = field(default_factory=dict)
    leaves: tuple[Leave, ...] = ()  # the latest, at most `KEPT_LEAVES`
    front_since: MsInstant | None = None  # None for an empty lane
    # Operations whose turn waits for one that the lane has not seen, by the operation; None where none does.
    missing: Mapping[str, str] | None = None

    def __len__(self) -> int:
        return self.queue.count(";")

    @property
    def front(self) -> Place | None:
        """The first place; None when there is none."""
        return next(self.places(), None)

    @property
    def blocking(self) -> str | None:
        """The dead letter that blocks the lane; None when none does."""
        front = self.front
        return None if front is None else self.dead_letters.get(front.operation_id)

    @property
    def holder(self) -> Place | None:
        """The place that has the turn, if its orchestration has asked; None when none has."""
        front = self.front
        if front is None or not front.run or self.blocking is not None:
            return None
        return None if front.operation_id in (self.missing or {}) else front

    def places(self) -> Iterator[Place]:
        """Give the places, the first in front."""
        at = 1
        while at < len(self.queue):
            end = self.queue.find(";", at)
            end = len(self.queue) if end < 0 else end
            yield Place.read(self.queue[at:end])
            at = end + 1

    def place_of(self, operation_id: str) -> Place | None:
        """Return the place of an operation; None when it has none."""
        at = self.queue.find(f";{operation_id}:")
        if at < 0:
            return None
        end = self.queue.find(";", at + 1)
        return Place.read(self.queue[at + 1 : None if end < 0 else end])

    def ahead_of(self, operation_id: str) -> int:
        """Return how many places are before that of an operation, which has one."""
        return self.queue.count(";", 0, self.queue.index(f";{operation_id}:"))

    def has_left(self, place: Place) -> bool:
        """Whether a run is over, as far as the lane remembers."""
        latest = max(
            (leave.run for leave in self.leaves if leave.operation_id == place.operation_id), default=0
        )
        return place.run <= latest if place.run else place.accepted_ms <= latest + _ROUNDING_MS

    def with_place(self, place: Place) -> Self:
        """Return the lane with one more place, or the same when it is full.

        The order is that of the numbers; a place without one comes last. No place goes before a front that
        may have its turn.
        """
        if len(self) >= MOST_PLACES:
            return self
        at = self._position_of(place)
        lane = replace(self, queue=f"{self.queue[:at]}{place}{self.queue[at:]}")
        return lane.without_missing(place.operation_id)

    def _position_of(self, place: Place) -> int:
        """Return where in the queue a new place stands: before the first one with a higher number."""
        at = end = len(self.queue)
        while place.number and (begin := self.queue.rfind(";", 0, end)) >= 0:
            other = Place.read(self.queue[begin + 1 : end])
            is_behind = 0 < other.number <= place.number
            if is_behind or (begin == 0 and other.operation_id not in (self.missing or {})):
                break
            at, end = begin if other.number else at, begin
        return at

    def has_seen(self, operation_id: str) -> bool:
        """Whether an operation is in the lane, or was, as far as it remembers."""
        is_here = f";{operation_id}:" in self.queue
        return is_here or any(leave.operation_id == operation_id for leave in self.leaves)

    def with_missing(self, operation_id: str, after: str | None) -> Self:
        """Return the lane in which an operation waits for the one before it, unless that was seen."""
        if after is None or self.has_seen(after) or not self.has_seen(operation_id):
            return self
        return replace(self, missing={**(self.missing or {}), operation_id: after})

    def without_missing(self, operation_id: str) -> Self:
        """Return the lane in which no operation waits any more for one that was not seen."""
        missing = {name: after for name, after in (self.missing or {}).items() if after != operation_id}
        return self if missing == (self.missing or {}) else replace(self, missing=missing or None)

    def without_wait(self, operation_id: str) -> Self:
        missing = {name: after for name, after in (self.missing or {}).items() if name != operation_id}
        return self if missing == (self.missing or {}) else replace(self, missing=missing or None)

    def with_run(self, place: Place, run: int) -> Self:
        """Return the lane with a later run at a place; a dead letter of an earlier one blocks no more."""
        letters = {name: letter for name, letter in self.dead_letters.items() if name != place.operation_id}
        queue = self.queue.replace(str(place), str(place._replace(run=run)), 1)
        return replace(self, queue=queue, dead_letters=letters)

    def with_dead_letter(self, place: Place, dead_letter_id: str, run: int) -> Self:
        """Return the lane with what the operation of a place has ended as, in a run."""
        lane = self.with_run(place, run)
        return replace(lane, dead_letters={**lane.dead_letters, place.operation_id: dead_letter_id})

    def with_leave(self, place: Place) -> Self:
        others = tuple(leave for leave in self.leaves if leave.operation_id != place.operation_id)
        lane = replace(self, leaves=(*others, Leave(place.operation_id, place.run))[-KEPT_LEAVES:])
        return lane.without_missing(place.operation_id)

    def without(self, place: Place) -> Self:
        lane = self.with_run(place, place.run).without_wait(place.operation_id)
        return replace(lane, queue=lane.queue.replace(str(place), "", 1))

    def since(self, before: Self, now: datetime) -> Self:
        """Return the lane with the instant since when its front is there, compared with the state before."""
        front = self.front
        if front is None:
            return replace(self, front_since=None)
        is_same = before.front is not None and before.front.operation_id == front.operation_id
        return self if is_same and self.front_since is not None else replace(self, front_since=now)


def joined(lane: Lane, place: Place, after: str | None = None) -> Lane:
    """Give an operation that was accepted its place, unless it has one or is over."""
    if lane.has_left(place) or lane.place_of(place.operation_id):
        return lane
    return lane.with_place(place).with_missing(place.operation_id, after)


def taken(lane: Lane, place: Place, after: str | None = None) -> tuple[Lane, Turn]:
    """Return whether a run has its turn; it joins if its join has not come. Asking again changes nothing.

    Without `after` there is no operation before it, or a look has found out what became of that.
    """
    if lane.has_left(place):
        return lane, Turn(has_turn=False)  # The message came again: this answer is not used.
    stored = lane.place_of(place.operation_id)
    if stored is None:
        lane = lane.with_place(place).with_missing(place.operation_id, after)
    elif stored.run < place.run:
        lane = lane.with_run(stored, place.run)
    lane = lane.without_wait(place.operation_id) if after is None else lane
    return lane, _turn_of(lane, place)


def _turn_of(lane: Lane, place: Place) -> Turn:
    front, missing = lane.front, (lane.missing or {}).get(place.operation_id)
    if missing is None and (front is None or front.operation_id == place.operation_id):
        return Turn(has_turn=True)
    is_in_lane = lane.place_of(place.operation_id) is not None
    return Turn(
        has_turn=False,
        ahead=lane.ahead_of(place.operation_id) if is_in_lane else len(lane),
        front=None if front is None else front.operation_id,
        dead_letter_id=lane.blocking,
        missing=missing,
        front_since=lane.front_since,
    )


def left(lane: Lane, place: Place, dead_letter_id: str | None) -> Lane:
    """Note the end of a run; one that ended as a dead letter that blocks keeps its place."""
    stored = lane.place_of(place.operation_id)
    if stored is not None and not stored.is_of(place):
        return lane
    if stored is not None and dead_letter_id is not None:
        return lane.with_dead_letter(stored, dead_letter_id, place.run)
    lane = lane.with_leave(place) if place.run else lane
    return lane if stored is None else lane.without(stored)


def dropped(lane: Lane, place: Place) -> Lane:
    """Remove the place of a run that is gone, and no other: the operation may have come again meanwhile."""
    stored = lane.place_of(place.operation_id)
    return lane.without(stored) if stored == place else lane


def released(lane: Lane, operation_id: str, dead_letter_id: str) -> Lane:
    """Remove the place of an operation whose present dead letter was archived, not an earlier one."""
    stored = lane.place_of(operation_id)
    if stored is None or lane.dead_letters.get(operation_id) != dead_letter_id:
        return lane
    return lane.with_leave(stored).without(stored)


def passed_to(before: Lane, after: Lane) -> Place | None:
    """Return the place that has the turn now, and did not have it before; None when no event is to be sent.

    An operation whose orchestration has not asked yet gets the answer when it asks.
    """
    holder, had_it = after.holder, before.holder
    return None if holder and had_it and holder.operation_id == had_it.operation_id else holder


FIRST_ASK_SECONDS: Final = 5.0
LONGEST_ASK_SECONDS: Final = 300.0
LAST_ASK_SECONDS: Final = 3_600.0
SECONDS_FOR_EACH_AHEAD: Final = 3.0
"""Bounds of the wait before an operation asks again whether it has its turn, since an event may be lost. Far
behind, the wait grows with the place: of 10,000 that wait about four ask in a second."""

LOOKS_FROM: Final = 3
"""In how many first places an operation that asks again has the front looked at: it may be gone."""


def ask_again_seconds(ahead: int, front_seconds: float) -> float:
    """Return how long an operation waits before it asks again, behind a front that is there for so long.

    In a lane that moves, a lost event is made up for within seconds; behind a front that stays, operations
    ask less and less.
    """
    grown = min(max(FIRST_ASK_SECONDS, front_seconds), LONGEST_ASK_SECONDS)
    return max(grown, min(ahead * SECONDS_FOR_EACH_AHEAD, LAST_ASK_SECONDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail(JsonShape):
    """The end of a lane for submissions: the operation that is accepted next comes behind it."""

    number: int  # of the latest operation
    recent: tuple[str, ...]  # the latest operations, at most `KEPT_IN_TAIL`, the latest last

    def before(self, operation_id: str) -> str | None:
        """Return the operation behind which another one comes; None when there is none."""
        return next((earlier for earlier in reversed(self.recent) if earlier != operation_id), None)


KEPT_IN_TAIL: Final = 16
"""Operations that a tail names, so that a submission that is repeated finds its number."""


def tail_after(tail: Tail | None, operation_id: str, now: datetime, *, is_anew: bool = False) -> Tail:
    """Return the tail behind one more operation; the same where it has a number already.

    A number is milliseconds since 1970, or one more than that before it: a tail that was removed begins anew
    above it.

    Args:
        is_anew: Whether to give it a new number, although it has one.
    """
    before = Tail(number=0, recent=()) if tail is None else tail
    if operation_id in before.recent and not is_anew:
        return before
    others = (earlier for earlier in before.recent if earlier != operation_id)
    recent = (*others, operation_id)[-KEPT_IN_TAIL:]
    return Tail(number=max(before.number + 1, to_ms(now)), recent=recent)


def lane_of_state(order_key: str, state: Any) -> Lane:
    """Read the state of a lane; an empty lane where there is none."""
    return Lane(order_key=order_key) if state is None else Lane.from_json(state)
