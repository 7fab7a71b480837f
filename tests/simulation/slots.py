"""Watches every operation of limiters: who is lent a slot, who waits for one, and what comes back."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from durable_retry.base.asks import KEPT_ASKS
from durable_retry.base.json_forms import from_ms, to_ms, union_from_json
from durable_retry.base.names import ACQUIRE, CALL_LIMITER, GIVE_BACK, LEAVE, Priority
from durable_retry.features.limits.names import LOOK
from durable_retry.features.limits.rules.fair import CREDIT, NO_SHARES, FairShares, counted_wait_ms
from durable_retry.features.limits.rules.leases import Lease, name_of
from durable_retry.features.limits.rules.limiter import EARLY_MS
from durable_retry.features.limits.rules.settings import LimitSettings
from durable_retry.features.limits.rules.state import LATE, UNUSED, Limiter
from durable_retry.rules.retry.slots import Slot, SlotAnswer, SlotPostponed, SlotRequest
from tests.simulation.entities import Operated
from tests.simulation.world import World

type Asked = tuple[str, datetime]
"""A lease and when the request for it was made."""

_SOON: Final = timedelta(seconds=1)
"""A slot is kept for one that asks within so long at least."""


@dataclass(frozen=True)
class Waiter:
    """An attempt that found no free slot.

    Attributes:
        due_at: Since when it waits, by the earliest of its requests.
        asks_at: When it asks again.
    """

    due_at: datetime
    asks_at: datetime
    priority: Priority | None
    limit_key: str | None

    def order(self, name: str, now: datetime) -> tuple[float, int, str]:
        due_ms = to_ms(self.due_at)
        return -counted_wait_ms(due_ms, self.priority, to_ms(now)), due_ms, name_of(name)


@dataclass(frozen=True)
class Grant:
    """An attempt got a slot.

    Attributes:
        name: Its lease.
        key: The dependency.
        older: The leases of those that waited, were in time and go first: older ones of its limit key, and
            those of keys that had less.
        room: How many slots were free.
    """

    name: str
    key: str
    older: tuple[str, ...]
    room: int


@dataclass
class _Seen:
    """What was seen of one limiter since its state was last rolled back."""

    state: Any = None
    waiters: dict[str, Waiter] = field(default_factory=dict)
    asked: set[tuple[str, datetime]] = field(default_factory=set)
    moved_at: datetime | None = None  # when a slot was last given back, or taken in order


@dataclass
class SlotWatch:
    """What was seen of limiters.

    Attributes:
        overlent: Limiters that lent more slots than there are.
        lent_again: Slots that were lent when they had been given back, to a request that came again.
        leases: When each lease that was lent expires, by its name and request.
        forgotten: Leases whose answer went out and whose state was not stored.
        granted: Attempts that got a slot at an instant that nobody told them, and the older ones that waited.
        withheld: Slots that were taken for an attempt which was told to wait.
        returned: Slots that attempts gave back, whether that arrived or not.
    """

    world: World
    overlent: list[str] = field(default_factory=list)
    lent_again: list[str] = field(default_factory=list)
    leases: dict[Asked, datetime] = field(default_factory=dict)
    forgotten: set[Asked] = field(default_factory=set)
    granted: list[Grant] = field(default_factory=list)
    withheld: list[str] = field(default_factory=list)
    returned: set[Asked] = field(default_factory=set)
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _lent: dict[str, set[Asked]] = field(default_factory=dict)
    _given_back: dict[Asked, int] = field(default_factory=dict)
    _messages: int = 0
    _names: dict[str, str] = field(default_factory=dict)  # of attempts, by the short names of their leases

    def signaled(self, operation: str, given: Any) -> None:
        if operation == GIVE_BACK and (slot := _asked_in(given)) is not None:
            self.returned.add(slot)

    def changed(self, operated: Operated) -> None:
        if operated.name != CALL_LIMITER:
            return
        key, before, after = operated.key, _state_of(operated.before), _state_of(operated.after)
        if operated.before is not self._seen.setdefault(key, _Seen()).state:
            # An operation was not stored: those that wait have the places that they had before it.
            self._seen[key] = _Seen(waiters=self._waiters_in(before, self._seen[key].waiters))
        lent_before = self._lent_in(before)
        self.forgotten |= self._lent.get(key, set()) - lent_before
        self._messages += 1
        if operated.operation == GIVE_BACK:
            if (slot := _asked_in(operated.given)) is not None:
                self._given_back[slot] = self._messages
            assert after.clock is not None
            if self._lent_in(before.at(after.clock)[0]) != self._lent_in(after):
                self._seen[key].moved_at = after.clock  # The slot of a lease that was over was free before.
        elif operated.operation == LEAVE:
            self._seen[key].waiters.pop(operated.given["lease_id"], None)
        elif operated.operation == LOOK:
            self._forget_gone(key, before, after)
        elif operated.operation == ACQUIRE:
            request = SlotRequest.from_json(operated.given)
            self._names[name_of(request.lease_id)] = request.lease_id
            self._look_at_order(request, operated)
            self._look_at_number(request, operated, lent_before, self._lent_in(after))
        self._lent[key] = self._lent_in(after)
        self._seen[key].state = operated.after
        self._look_at_leases(key, after)

    def _forget_gone(self, key: str, before: Limiter, after: Limiter) -> None:
        """Count those as gone that were told of a slot and did not ask in time: nobody waits for them."""
        assert after.clock is not None
        now_ms, waiters = to_ms(after.clock), self._seen[key].waiters
        gone = {place.waiter for place in before.places if place.is_told and place.asks_ms <= now_ms}
        self._seen[key].waiters = {
            name: waiter for name, waiter in waiters.items() if name.partition(".")[0] not in gone
        }

    def lent_at(self, state: Limiter) -> dict[str, Lease]:
        """Return the leases of a state by what their attempts are called."""
        now = state.clock or self.world.now()
        found = ((name, state.leases.find(short, now)) for short, name in self._names.items())
        return {name: lease for name, lease in found if lease is not None}

    def _lent_in(self, state: Limiter) -> set[Asked]:
        return {(name, lease.asked_at) for name, lease in self.lent_at(state).items()}

    def _waiters_in(self, state: Limiter, known: Mapping[str, Waiter]) -> dict[str, Waiter]:
        places = {self._names.get(place.name): place for place in state.places}
        return {
            name: replace(waiter, asks_at=from_ms(places[name].asks_ms))
            for name, waiter in known.items()
            if name in places
        }

    def _look_at_number(
        self, request: SlotRequest, operated: Operated, before: set[Asked], lent: set[Asked]
    ) -> None:
        pool = _pool_of(request)
        if pool > 0 and len(lent) > pool:
            self.overlent.append(f"{operated.key} lends {len(lent)} slots of {pool} at {self.world.now()}")
        if lent - before and operated.answer["kind"] != "slot":
            self.withheld.append(f"{operated.key} takes a slot for {request.lease_id}, which waits")

    def _look_at_leases(self, key: str, after: Limiter) -> None:
        for name, lease in self.lent_at(after).items():
            asked = (name, lease.asked_at)
            self.leases[asked] = lease.asked_at + timedelta(seconds=lease.seconds)
            given_back = self._given_back.get(asked)
            # A limiter remembers so many requests.
            if given_back is not None and self._messages - given_back < KEPT_ASKS:
                self.lent_again.append(f"{key} lends {name} again at {self.world.now()}")

    def _look_at_order(self, request: SlotRequest, operated: Operated) -> None:
        """See that nobody passes those who wait, go before it and are about to ask, by its clock."""
        key, name, answer = operated.key, request.lease_id, union_from_json(SlotAnswer, operated.answer)
        seen = self._seen[key]
        now = _state_of(operated.after).clock
        assert now is not None
        lent, _ = _state_of(operated.before).at(now)
        late = LATE + lent.delay  # as it was when the request came: how slow that was counts from then on
        came_again = (name, request.asked_at) in seen.asked
        seen.asked.add((name, request.asked_at))
        if came_again or lent.leases.find(name_of(name), now) is not None:
            return  # Also a request that came again when its slot was given back: who asks keeps its place.
        waiters = {each: waiter for each, waiter in seen.waiters.items() if waiter.asks_at + late >= now}
        own = waiters.pop(name, None)
        due_at = min([request.due_at, *([] if own is None else [own.due_at])])
        if isinstance(answer, SlotPostponed) and answer.ahead is not None:
            waiters[name] = Waiter(
                due_at, now + timedelta(seconds=answer.seconds), request.priority, request.limit_key
            )
        seen.waiters = waiters
        places = (place for place in lent.places if place.is_of(name_of(name), request.waiter))
        is_told = any(place.is_called for place in places)
        is_due = own is not None and own.asks_at <= now + timedelta(milliseconds=EARLY_MS)
        is_expected = is_told or is_due
        is_unused = seen.moved_at is None or seen.moved_at + UNUSED <= now
        if not isinstance(answer, Slot) or is_expected or is_unused:
            return
        seen.moved_at = now
        asking = Waiter(due_at, now, request.priority, request.limit_key)
        settings = LimitSettings.from_json(request.settings)
        starts = _starts({**waiters, name: asking}, lent.fair or NO_SHARES, now)
        older = tuple(
            each
            for each, waiter in waiters.items()
            if waiter.asks_at <= now + _SOON
            and (
                waiter.order(each, now) < asking.order(name, now)
                if waiter.limit_key == request.limit_key
                else settings.per_key is None and starts[each] < starts[name]
            )
        )
        self.granted.append(Grant(name, key, older, _pool_of(request) - len(lent.leases)))


def _starts(waiters: dict[str, Waiter], fair: FairShares, now: datetime) -> dict[str, float]:
    """Return the virtual start of each that waits, by what its limit key was granted."""
    starts, of_key = dict[str, float](), Counter[str | None]()
    finish = {share.limit_key: share.finish for share in fair.shares}
    for name, waiter in sorted(waiters.items(), key=lambda item: item[1].order(item[0], now)):
        least = fair.virtual - CREDIT
        starts[name] = max(finish.get(waiter.limit_key, least), least) + of_key[waiter.limit_key]
        of_key[waiter.limit_key] += 1
    return starts


def _pool_of(request: SlotRequest) -> int:
    settings = LimitSettings.from_json(request.settings)
    return settings.max_concurrency - settings.shared_concurrency


def _asked_in(given: Any) -> Asked | None:
    """Return the slot that is given back; None where there is nothing to give back."""
    slot = Slot.from_json(given)
    return None if slot.lease_id is None or slot.asked_at is None else (slot.lease_id, slot.asked_at)


def _state_of(stored: Any) -> Limiter:
    return Limiter.from_json(stored or {})
