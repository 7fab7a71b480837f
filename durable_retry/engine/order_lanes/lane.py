"""The lane of one order key: whose turn it is, and who waits behind it.

    joined(lane, place)      at submission, so that places are in the order in which operations were accepted
    taken(lane, place)       the operation's orchestration asks for its turn; it joins if it has not yet
    left(lane, place)        the operation has ended; with a dead letter that blocks, it keeps its place
    dropped(lane, place)     its owner is gone without a word
    released(lane, ...)      the dead letter that blocks was archived

The front of the queue has the turn, unless it has ended as a dead letter: then the lane is blocked until that
is replayed to its end, or archived. A replay finds the place of its operation, and has the turn there.

Messages to entities come twice, late and in another order (docs/decisions/entity-messages.md). So a place
names its run, which only grows: a message of an earlier run changes nothing, and the lane remembers the
latest operations that left, whose joins may come after their end. What it has forgotten is found to be gone.

The queue is one text, `;operation:accepted_ms:run` for each place. A lane may hold 10,000 and is read and
written by each message: as a text it needs no parsing (docs/decisions/order-lanes.md).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple, Self

from durable_retry.engine.base.instants import from_ms, to_ms
from durable_retry.engine.base.json_forms import Form, JsonRow, JsonShape, MsInstant
from durable_retry.engine.base.text import counted
from durable_retry.engine.circuit.snapshot import CLOCK_LEAD

MOST_PLACES: Final = 20_000
"""Places that a lane keeps, about 1.3 MB: a message of the durable client takes 4 MiB. Who comes when it is
full gets a place when it asks again."""

KEPT_LEAVES: Final = 64
"""Operations that a lane remembers after they left, about 3 KB."""

_LEAD_MS: Final = CLOCK_LEAD // timedelta(milliseconds=1)

# A run number is milliseconds of the instant at which its start was accepted, or more, but for its rounding.
_ROUNDING_MS: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMessage(JsonShape):
    """What an operation says to its lane."""

    order_key: str
    operation_id: str
    accepted_at: MsInstant  # or when it began, if it was submitted to begin later
    run: int = 0  # run number of its claim; 0 before that
    # The dead letter that it ended as, if that blocks the lane; else None.
    dead_letter_id: Annotated[str | None, Form(omits_none=True)] = None


@dataclass(frozen=True, slots=True)
class Turn(JsonShape):
    """The answer to an operation that asks for its turn."""

    has_turn: bool
    ahead: int = 0  # how many places are before its own
    front: str | None = None  # the operation in front; None when it has the turn itself
    dead_letter_id: str | None = None  # what that has ended as and blocks the lane with; None while it runs

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it waits, each a few words."""
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

    @classmethod
    def of(cls, message: LaneMessage) -> Self:
        """Return the place of a message."""
        return cls(message.operation_id, to_ms(message.accepted_at), message.run)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a place of a queue."""
        operation_id, accepted_ms, run = text.split(":")
        return cls(operation_id, int(accepted_ms), int(run))

    @property
    def accepted_at(self) -> datetime:
        """When its operation was accepted."""
        return from_ms(self.accepted_ms)

    def is_of(self, other: Self) -> bool:
        """Whether this is the place of the same run, or of an earlier one, as a message says it."""
        # A start that never held the claim of its key knows no run, and leaves what it alone has joined.
        return self.run <= other.run if other.run else self == other

    def __str__(self) -> str:
        return f";{self.operation_id}:{self.accepted_ms}:{self.run}"


@dataclass(frozen=True, slots=True)
class Leave(JsonRow):
    """A run that has left."""

    operation_id: str
    run: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane(JsonShape):
    """The state of a lane; one that nobody is in has none."""

    order_key: str
    queue: str = ""  # see the head of this module
    # Dead letters of the operations that keep their places, by operation.
    dead_letters: Mapping[str, str] = field(default_factory=dict)
    leaves: tuple[Leave, ...] = ()  # the latest, at most `KEPT_LEAVES`
    front_since: Annotated[MsInstant | None, Form(omits_none=True)] = None  # None for an empty lane

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
        latest = max((each.run for each in self.leaves if each.operation_id == place.operation_id), default=0)
        return place.run <= latest if place.run else place.accepted_ms <= latest + _ROUNDING_MS

    def with_place(self, place: Place) -> Self:
        """Return the lane with one more place, or the same when it is full.

        The order is that of arrival, which is that of acceptance, but for a message that was late: clocks of
        workers differ, and an instant says which of two came first only where they lie further apart than
        clocks do. Nobody goes before the front, which may have its turn.
        """
        if len(self) >= MOST_PLACES:
            return self
        at = len(self.queue)
        while (before := self.queue.rfind(";", 0, at)) > 0:
            accepted_ms = Place.read(self.queue[before + 1 : at]).accepted_ms
            if accepted_ms - place.accepted_ms <= _LEAD_MS:
                break
            at = before
        return replace(self, queue=f"{self.queue[:at]}{place}{self.queue[at:]}")

    def with_run(self, known: Place, run: int) -> Self:
        """Return the lane with a later run at a place; a dead letter of an earlier one blocks no more."""
        letters = {name: each for name, each in self.dead_letters.items() if name != known.operation_id}
        queue = self.queue.replace(str(known), str(known._replace(run=run)), 1)
        return replace(self, queue=queue, dead_letters=letters)

    def with_dead_letter(self, known: Place, dead_letter_id: str, run: int) -> Self:
        """Return the lane with what the operation of a place has ended as, in a run."""
        lane = self.with_run(known, run)
        return replace(lane, dead_letters={**lane.dead_letters, known.operation_id: dead_letter_id})

    def with_leave(self, place: Place) -> Self:
        """Return the lane that remembers the end of a run."""
        others = tuple(each for each in self.leaves if each.operation_id != place.operation_id)
        return replace(self, leaves=(*others, Leave(place.operation_id, place.run))[-KEPT_LEAVES:])

    def without(self, known: Place) -> Self:
        """Return the lane without a place."""
        lane = self.with_run(known, known.run)
        return replace(lane, queue=lane.queue.replace(str(known), "", 1))

    def since(self, before: Self, now: datetime) -> Self:
        """Return the lane with the instant since when its front is there, compared with the state before."""
        front = self.front
        if front is None:
            return replace(self, front_since=None)
        is_same = before.front is not None and before.front.operation_id == front.operation_id
        return self if is_same and self.front_since is not None else replace(self, front_since=now)


def joined(lane: Lane, place: Place) -> Lane:
    """Give an operation that was accepted its place, unless it has one or is over."""
    return lane if lane.has_left(place) or lane.place_of(place.operation_id) else lane.with_place(place)


def taken(lane: Lane, place: Place) -> tuple[Lane, Turn]:
    """Return whether a run has its turn; it joins if its join has not come. Asking again changes nothing."""
    if lane.has_left(place):
        return lane, Turn(has_turn=False)  # Nobody waits for this answer: the message came again.
    known = lane.place_of(place.operation_id)
    if known is None:
        lane = lane.with_place(place)
    elif known.run < place.run:
        lane = lane.with_run(known, place.run)
    return lane, _turn_of(lane, place)


def _turn_of(lane: Lane, place: Place) -> Turn:
    front = lane.front
    if front is None or front.operation_id == place.operation_id:
        return Turn(has_turn=True)
    is_kept = lane.place_of(place.operation_id) is not None
    ahead = lane.ahead_of(place.operation_id) if is_kept else len(lane)
    return Turn(has_turn=False, ahead=ahead, front=front.operation_id, dead_letter_id=lane.blocking)


def left(lane: Lane, place: Place, dead_letter_id: str | None) -> Lane:
    """Take the end of a run down; one that ended as a dead letter that blocks keeps its place."""
    known = lane.place_of(place.operation_id)
    if known is not None and not known.is_of(place):
        return lane
    if known is not None and dead_letter_id is not None:
        return lane.with_dead_letter(known, dead_letter_id, place.run)
    lane = lane.with_leave(place) if place.run else lane
    return lane if known is None else lane.without(known)


def dropped(lane: Lane, place: Place) -> Lane:
    """Take the place of a run that is gone: of exactly that one, since it may have come again meanwhile."""
    known = lane.place_of(place.operation_id)
    return lane.without(known) if known == place else lane


def released(lane: Lane, operation_id: str, dead_letter_id: str) -> Lane:
    """Take the place of an operation whose dead letter was archived, not an earlier one."""
    known = lane.place_of(operation_id)
    if known is None or lane.dead_letters.get(operation_id) != dead_letter_id:
        return lane
    return lane.with_leave(known).without(known)


def passed_to(before: Lane, after: Lane) -> Place | None:
    """Return who has the turn now, and did not have it before; None when there is nobody to say it to.

    An operation whose orchestration has not asked yet is told when it asks.
    """
    front = after.front
    if front is None or not front.run or after.blocking is not None:
        return None
    was_front = before.front is not None and before.front.operation_id == front.operation_id
    return None if was_front else front


FIRST_ASK_SECONDS: Final = 30.0
LONGEST_ASK_SECONDS: Final = 300.0
LAST_ASK_SECONDS: Final = 3_600.0
SECONDS_FOR_EACH_AHEAD: Final = 3.0
"""Bounds of the wait before an operation asks again whether it has its turn, for a word that was lost. Far
behind, it grows with the place: of 10,000 that wait about four ask in a second."""

LOOKS_FROM: Final = 3
"""Places in which an operation that asks again lets the front be looked at: whether it is still there."""


def ask_again_seconds(ahead: int, times: int) -> float:
    """Return how long an operation waits before it asks again, after it has asked so many times in vain."""
    grown: float = min(FIRST_ASK_SECONDS * 2 ** min(times, 10), LONGEST_ASK_SECONDS)
    return max(grown, min(ahead * SECONDS_FOR_EACH_AHEAD, LAST_ASK_SECONDS))


def lane_of_state(order_key: str, state: Any) -> Lane:
    """Read the state of a lane; an empty lane where there is none."""
    return Lane(order_key=order_key) if state is None else Lane.from_json(state)
