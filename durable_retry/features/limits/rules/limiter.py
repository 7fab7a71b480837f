"""The entity `call_limiter` of one dependency: it grants the attempts that exceed the workers' shares.

Its state has a lease for each attempt under way, the instant of the latest start, and the places of the
attempts that wait. The order of the places is the time since each attempt was first due. A higher priority
makes that time count more (`base.names`), and limit keys get fair shares (`fair.py`).

    acquire ──> Slot: it may start, in `turn_seconds` where there is a rate
            └─> SlotPostponed: it has a place, and asks again when its turn should come
            └─> SlotPostponed with `turn_seconds`: a start within the next seconds is reserved for it

An attempt with a place gets an instant, asks again at that instant, and then goes. An attempt that does not
ask then holds up no other. An attempt that asks at any other time, such as a new one, goes only when none
before it is about to ask. A slot or a start that none took for a while goes to the next attempt that asks. So
places and turns end by themselves when an attempt is gone, and nothing stays free while attempts ask.

Unless there are a rate and bounds of keys, an attempt that waits for a slot is told when one is free
(`calls.py`), and asks at once. Where no key has bounds, so is one whose turn is far away.

Requests and returns may come twice, late, and in another order: `base.asks`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from math import inf
from typing import Final

from durable_retry.base.answers import read_or
from durable_retry.base.json_forms import to_ms
from durable_retry.base.text import counted
from durable_retry.features.limits.rules.calls import KEPT_LINE, LEAST_TOLD_SECONDS, calls_of
from durable_retry.features.limits.rules.fair import (
    KEPT_PLACES,
    NO_SHARES,
    Place,
    Wait,
    after_tail,
    kept_within,
    place_bytes,
)
from durable_retry.features.limits.rules.leases import (
    LOOKED_AT,
    Lease,
    mark_of,
    name_of,
    was_answered,
    with_answered,
)
from durable_retry.features.limits.rules.settings import ReadLimits
from durable_retry.features.limits.rules.state import RESERVED_SECONDS, Limiter
from durable_retry.features.limits.rules.told import Told, with_told, with_told_again, without_told
from durable_retry.rules.retry.slots import (
    DOOR_SECONDS,
    Leaving,
    Slot,
    SlotAnswer,
    SlotPostponed,
    SlotRequest,
)

LEAST_ASK_SECONDS: Final = 0.02
LONGEST_ASK_SECONDS: Final = 10.0
"""An attempt that has a place, or waits for a turn, asks again after at least and at most so long: of those
before it some may leave."""
SOONEST_LONGEST_SECONDS: Final = 10.0
LATEST_LONGEST_SECONDS: Final = 60.0
"""An attempt that waits for a slot asks again after at most twice the mean duration, and that is kept within
these bounds. Durations change: a wait by an earlier mean must not leave slots free for long."""
TAIL_PART: Final = 0.01
LEAST_TAIL_SECONDS: Final = 0.05
"""Attempts without a place ask again one after the other. From one to the next this part of the mean duration
passes, or half of the time in which a slot gets free, if that is less: so that places never run out."""
LONGEST_TOLD_SECONDS: Final = 1_800.0
"""An attempt that waits to be told of a free slot also asks by itself, as the one that should tell it may be
gone: after twice the time until a slot should be free, but between `LEAST_TOLD_SECONDS` and this."""
TOLD_TURN_PART: Final = 1.5
"""The same for a turn, whose instant is known better: after this part of the time until it."""
HELD_PART: Final = 0.02
"""An attempt that finds its slot still taken asks again after this part of the mean duration."""
ASK_SOONER: Final = 1.5
"""Attempts ask for slots this many times as often as slots should get free, so that none stays free."""
OVERDUE_PART: Final = 0.25
"""An attempt that has exceeded the mean duration is expected to end after this part of the excess."""
EARLY_MS: Final = 50
"""An attempt that asks so much before its instant counts as asking at it."""
MOST_SOON_SECONDS: Final = 10.0
"""A free slot is kept for an attempt that goes first and asks within the mean duration, at least a second and
at most this. If the slot were lent to another now, it would not be back by then."""
LAST_PART: Final = 0.2
"""An attempt should ask for its turn shortly after it may be reserved: later by this part of that time."""
MOST_AT_DOOR: Final = 8.0
"""About so many attempts wait at their workers for their turns, twice as many where messages are slow. With a
fast rate they therefore come less than `DOOR_SECONDS` before their turn."""
FIRST_ASK_SECONDS: Final = 5.0
FIRST_SLOT_ASK_SECONDS: Final = 2.0
FIRST_SPACING: Final = timedelta(milliseconds=10)
"""A new attempt asks again after at most so long (the second is for a slot), and so long after the new one
before it, however many seem to wait, since those may be gone. Until one slot has been given back, all who
wait for a slot do so."""
UNKNOWN_SECONDS: Final = 1.0
"""The mean duration before the first attempt has ended."""


def acquire(limiter: Limiter, request: SlotRequest, received_at: datetime) -> tuple[Limiter, SlotAnswer]:
    """Grant a slot, or return when to ask again."""
    if request.freed is not None:
        # Without this a slot whose message is lost would be free only at the end of its lease.
        freed = read_or(partial(Slot.from_json, request.freed), lambda _: Slot())
        limiter = give_back(limiter, freed, received_at)
    limiter, now = limiter.at(received_at)
    name = name_of(request.lease_id)
    if (lease := limiter.leases.find(name, now)) is not None:
        # A turn whose history was not stored runs again, maybe by a clock that is behind the first one's.
        asked_at = max(request.asked_at, lease.asked_at)
        limiter = replace(limiter, leases=limiter.leases.with_asked_at(lease, asked_at))
        if request.is_signal:
            again = with_told_again(limiter.told, name, to_ms(asked_at), to_ms(now))
            limiter = replace(limiter, told=again)
        return limiter, Slot(request.lease_id, asked_at)
    if was_answered(limiter.answered, name, request.asked_at, now):
        # No one waits for the answer, unless the clock of the attempt went back: then it asks again.
        return limiter, SlotPostponed(1.0, "this request was answered before")
    limiter, answer = _Asking.of(limiter, request, name, now).answer()
    if request.is_signal:
        seconds = answer.seconds if isinstance(answer, SlotPostponed) else None
        told = Told(name, to_ms(request.asked_at), to_ms(now), seconds, answer.turn_seconds)
        limiter = replace(limiter, told=with_told(limiter.told, told))
    if isinstance(answer, Slot) and answer.lease_id is not None:
        return limiter, answer
    answered = with_answered(limiter.answered, name, request.asked_at, now)
    return replace(limiter, answered=answered), answer


def answer_to(limiter: Limiter, request: SlotRequest, received_at: datetime) -> SlotAnswer | None:
    """Return the answer to a request that was signalled, or repeated since; None while there is none."""
    name, asked_ms = name_of(request.lease_id), to_ms(request.asked_at)
    told = next((told for told in limiter.told or () if told.name == name), None)
    if told is None or told.asked_ms < asked_ms:
        return None
    late_seconds = (to_ms(received_at) - told.told_ms) / 1_000
    turn_seconds = None if told.turn_seconds is None else told.turn_seconds - late_seconds
    if told.seconds is None:
        return Slot(request.lease_id, request.asked_at, turn_seconds)
    seconds = max(told.seconds - late_seconds, LEAST_ASK_SECONDS)
    return SlotPostponed(seconds, "it waits for a slot or a turn", turn_seconds, ahead=0)


@dataclass(frozen=True, slots=True)
class _Asking:
    """An attempt that asks, among those that wait."""

    limiter: Limiter
    request: SlotRequest
    settings: ReadLimits
    now: datetime
    own: Place
    before: list[Place]  # the places that go before its own, in their order
    behind: list[Place]
    is_known: bool  # whether it has a place
    is_due: bool  # whether it asks at its instant, or was told that a slot is free
    lent_by_key: Counter[str]  # by the marks of limit keys; empty where none has a bound

    @classmethod
    def of(cls, limiter: Limiter, request: SlotRequest, name: str, now: datetime) -> "_Asking":
        key, live = request.limit_key, limiter.live_places(now)
        before = next((place for place in live if place.is_of(name, request.waiter)), None)
        now_ms, due_ms = to_ms(now), to_ms(request.due_at)
        due_ms = due_ms if before is None else min(due_ms, before.due_ms)
        settings = ReadLimits.from_json(request.settings).with_later(limiter.settings)
        weight = settings.weight_of(key)
        # Telling it is enough only where it waits for nothing but a slot that is given back, or a turn.
        is_told_enough = settings.tells_turns or not settings.has_rate(key)
        waiter = request.waiter if is_told_enough else None
        own = Place(due_ms, name, now_ms, request.priority, key, weight, waiter)
        others = tuple(place for place in live if place is not before)
        ordered = (limiter.fair or NO_SHARES).in_order((*others, own), now)
        at = next(index for index, place in enumerate(ordered) if place is own)
        is_called = before is not None and before.is_called
        is_told = before is not None and before.is_told
        # While others are called for slots, an attempt that asks by itself takes only what they leave.
        takes_any = settings.is_rate_alone or not limiter.called
        is_due = before is not None and before.asks_ms <= now_ms + EARLY_MS and takes_any
        limiter = replace(limiter, places=others, settings=replace(settings, weights=None))
        return cls(
            limiter.heard(request.asked_at, now).seen(came=is_told),
            request,
            settings,
            now,
            own,
            ordered[:at],
            ordered[at + 1 :],
            before is not None,
            is_due or is_called,
            limiter.lent_by_key,
        )

    @property
    def mean_seconds(self) -> float:
        """How long an attempt is expected to have its slot: the mean of those that ended."""
        if self.limiter.lasted_seconds is not None:
            return self.limiter.lasted_seconds
        oldest = self.limiter.leases.begins(1, self.now)
        return max([UNKNOWN_SECONDS, *((self.now - begun).total_seconds() for begun in oldest)])

    def ahead(self, seconds: float | None = None, *, of_key: bool = False) -> int:
        """Return how many of those before it ask within so long and may start then; None is any time.

        For a key at its bound none is counted, so that it keeps no slot from other keys.
        """
        until_ms = inf if seconds is None else to_ms(self.now) + seconds * 1_000
        by_key = Counter(
            place.limit_key for place in self.before if place.is_called or place.asks_ms <= until_ms
        )
        if of_key:
            return by_key[self.own.limit_key]
        return sum(
            min(number, self.limiter.room_of(key, self.lent_by_key, self.now))
            for key, number in by_key.items()
        )

    def seconds_behind(self, seconds_of: Callable[[int], float], *, of_key: bool = False) -> float:
        """Return how long it waits for those that go before it, of all keys or of its own.

        Meanwhile it passes some with a lower priority, so it waits for fewer than there are now.

        Args:
            seconds_of: Returns its wait behind a number of others.
        """
        if not any(place.counts_less_than(self.own) for place in self.before):
            return seconds_of(self.ahead(of_key=of_key))
        room_of = cache(lambda key: self.limiter.room_of(key, self.lent_by_key, self.now))
        seconds, by_key = seconds_of(0), Counter[str | None]()
        for place in self.before:
            key, then_ms = place.limit_key, to_ms(self.now) + round(seconds * 1_000)
            is_ahead = key == self.own.limit_key if of_key else by_key[key] < room_of(key)
            if is_ahead and not self.own.passes(place, then_ms):
                by_key[key] += 1
                seconds = seconds_of(by_key.total())
        return seconds

    def answer(self) -> tuple[Limiter, SlotAnswer]:
        waits = (self.wait_for_key(), self.wait_for_slot(), self.wait_for_turn())
        if reached := [wait for wait in waits if wait is not None]:
            return self.waiting(replace(reached[0], seconds=max(wait.seconds for wait in reached)))
        limiter, turn_seconds = self.started()
        limiter = limiter.without_waiter(self.own.waiter)
        if turn_seconds is not None and (ahead_seconds := turn_seconds - self.usual_door_seconds) > 0:
            limiter = limiter.crowded(ahead_seconds, self.now)
            if (seconds := turn_seconds - self.door_seconds) > 0:
                return limiter, SlotPostponed(round(seconds, 3), self.rate_text, turn_seconds)
        per_key, key = self.settings.per_key, self.own.limit_key
        is_bound = key is not None and per_key is not None and per_key.max_concurrency > 0
        if self.limiter.pool <= 0 and not is_bound:
            is_crowded = limiter.is_crowded(self.now) or None
            return limiter, Slot(turn_seconds=turn_seconds, is_crowded=is_crowded)
        mark = mark_of(key) if key is not None and is_bound else ""
        lease = Lease(self.own.name, self.request.asked_at, self.request.lease_seconds, mark)
        # A slot that none took means that those who wait are gone: the next attempt need not wait for them.
        is_unused = limiter.is_unused(limiter.moved_at, self.now)
        moved_at = (is_unused and limiter.moved_at) or self.now
        granted, calls = calls_of(replace(limiter, places=(*self.before, *self.behind)), self.own)
        granted = replace(granted, leases=limiter.leases.with_lease(lease), moved_at=moved_at)
        return granted, Slot(self.request.lease_id, self.request.asked_at, turn_seconds, calls=calls)

    @property
    def rate_text(self) -> str:
        return f"{counted(self.settings.rate_per_second, 'attempt')} per second"

    def wait_for_slot(self) -> Wait | None:
        """Return the wait of an attempt for which there is no free slot."""
        if self.limiter.pool <= 0:
            return None
        free, mean = self.limiter.pool - len(self.limiter.leases), self.mean_seconds
        if free > 0 and (self.is_due or self.limiter.is_unused(self.limiter.moved_at, self.now)):
            return None
        soon = min(max(mean, 1.0), MOST_SOON_SECONDS)
        if free > self.ahead(soon):
            return None
        most = self.settings.max_concurrency
        seconds = self.seconds_behind(self.seconds_until_free(most))
        return self.slot_wait(seconds, f"{counted(most, 'attempt')} at once", most)

    def slot_wait(self, seconds: float, reason: str, most: int, *, is_shared: bool = True) -> Wait:
        mean = self.mean_seconds
        return Wait(
            seconds,
            reason,
            min(mean / most / 2, max(mean * TAIL_PART, LEAST_TAIL_SECONDS)),
            min(max(2 * mean, SOONEST_LONGEST_SECONDS), LATEST_LONGEST_SECONDS),
            FIRST_SLOT_ASK_SECONDS,
            is_shared,
            is_for_slot=True,
        )

    def wait_for_turn(self) -> Wait | None:
        """Return the wait of an attempt whose turn is not among those that are reserved now."""
        rate = self.settings.rate_per_second
        if rate <= 0 or self.request.reserved:
            return None
        wait_seconds = (self.limiter.next_start(self.now) - self.now).total_seconds()
        last, step = self.limiter.last_start_at, timedelta(seconds=1 / rate)
        may_go = self.is_due or self.limiter.is_unused(None if last is None else last + step, self.now)
        # Where it also needs a slot, it gets that shortly before its turn: a slot must not be lent unused.
        soon = self.door_seconds if self.settings.lends_slots else RESERVED_SECONDS + self.delay_seconds
        latest = self.request.latest_seconds
        # One that is past it by now is owed an attempt, unless that would have to wait.
        is_too_late = latest is not None and wait_seconds > (self.door_seconds if latest < 0 else latest)
        if wait_seconds <= soon and not is_too_late and (may_go or not self.ahead(soon)):
            return None
        lead = 0.0 if is_too_late else soon - LAST_PART * min(soon, RESERVED_SECONDS)
        seconds = self.seconds_behind(lambda ahead: wait_seconds + ahead / rate - lead)
        return Wait(
            max(seconds, LEAST_ASK_SECONDS),
            self.rate_text,
            0.5 / rate,
            LONGEST_ASK_SECONDS,
            FIRST_ASK_SECONDS,
            told_from=LONGEST_ASK_SECONDS,
        )

    def wait_for_key(self) -> Wait | None:
        """Return the wait of an attempt whose limit key is at its own bound."""
        key, per_key = self.own.limit_key, self.settings.per_key
        if key is None or per_key is None:
            return None
        most, rate = per_key.max_concurrency, per_key.rate_per_second
        ahead, mark = self.ahead(of_key=True), mark_of(key)
        lent = self.lent_by_key[mark]
        wait_seconds = (self.limiter.start_of(key, self.now) - self.now).total_seconds()

        def turn_seconds(ahead: int) -> float:
            return wait_seconds + ahead / rate if rate > 0 else 0.0

        if most > 0 and lent + (0 if self.is_due else ahead) >= most:
            are = "is" if most == 1 else "are"
            busy = f"{lent} of {counted(most, 'attempt')} of {key} {are} under way"
            if lent < most:
                busy = f"{counted(ahead, 'attempt')} of {key} before it"
            free_seconds = self.seconds_until_free(most, mark)
            seconds = self.seconds_behind(
                lambda ahead: max(free_seconds(ahead), turn_seconds(ahead)), of_key=True
            )
            return self.slot_wait(seconds, busy, most, is_shared=False)
        is_early = self.limiter.start_of(key, self.now) > self.limiter.next_start(self.now)
        if rate > 0 and not self.request.reserved and (is_early or (ahead and not self.is_due)):
            early = f"{counted(rate, 'attempt')} per second of {key}"
            seconds = max(self.seconds_behind(turn_seconds, of_key=True), LEAST_ASK_SECONDS)
            return Wait(seconds, early, 0.5 / rate, LONGEST_ASK_SECONDS, FIRST_ASK_SECONDS, is_shared=False)
        return None

    def seconds_until_free(self, most: int, mark: str = "") -> Callable[[int], float]:
        """Return a function of how many go before, for the seconds until a slot should be free."""
        mean, now = timedelta(seconds=self.mean_seconds), self.now
        begins = self.limiter.leases.begins(most, now, mark)
        ends = [max(begun + mean, now + (now - begun - mean) * OVERDUE_PART) for begun in begins]
        lent = self.lent_by_key[mark] if mark else len(self.limiter.leases)
        if not mark:
            # Attempts that wait may also start within workers' shares, and it is not known when those end.
            shared = self.settings.shared_concurrency
            ends += [now + mean * (each + 1) / (shared + 1) for each in range(min(shared, LOOKED_AT))]
            lent += shared
        ends.sort()
        least_seconds = min(max(mean.total_seconds() * HELD_PART, LEAST_ASK_SECONDS), 1.0)

        def seconds_behind(ahead: int) -> float:
            # Those ahead take the free slots first.
            rounds, place = divmod(max(int(ahead / ASK_SOONER) + lent - most, 0), most)
            end = ends[place] if place < len(ends) else max([now + mean, *ends])
            return max((end - now + rounds * mean).total_seconds(), least_seconds)

        return seconds_behind

    def started(self) -> tuple[Limiter, float | None]:
        """Count a start; return in how many seconds it is, None without a rate or if counted before."""
        per_key = self.settings.per_key
        if self.request.reserved:
            return self.limiter, None
        if self.settings.rate_per_second <= 0:
            return self.limiter.charged(self.own, per_key, self.now, self.now), None
        turn_at = self.limiter.next_start(self.now)
        counted_start = replace(self.limiter, last_start_at=turn_at)
        turn_seconds = round((turn_at - self.now).total_seconds(), 3)
        return counted_start.charged(self.own, per_key, turn_at, self.now), turn_seconds

    @property
    def door_seconds(self) -> float:
        """How long before its turn an attempt is sent to its worker, where it waits for it."""
        return self.usual_door_seconds + min(self.delay_seconds, MOST_AT_DOOR / self.settings.rate_per_second)

    @property
    def usual_door_seconds(self) -> float:
        """The same where messages are not slow."""
        return min(DOOR_SECONDS, MOST_AT_DOOR / self.settings.rate_per_second)

    @property
    def delay_seconds(self) -> float:
        return self.limiter.delay.total_seconds()

    def waiting(self, wait: Wait) -> tuple[Limiter, SlotPostponed]:
        """Give the attempt a place if there is room, and say when it asks again."""
        limiter, seconds = self.limiter, min(wait.seconds, wait.longest_seconds)
        if self.settings.rate_per_second > 0:
            limiter = limiter.crowded(wait.seconds, self.now)
        kept, left = self.kept_until(self.now + timedelta(seconds=wait.seconds))
        has_place = self.own in kept
        # Those that lose their place now came before those in the line.
        before = tuple(place.waiter for place in left if place.waiter and place is not self.own)
        limiter = self.in_line(replace(limiter, line=before + limiter.line), has_place=has_place)
        is_told = wait.seconds >= wait.told_from if has_place else self.own.waiter in limiter.line
        if self.own.waiter and is_told:
            # If none comes for what is free, those who should tell it may be gone: it asks by itself soon.
            seconds = self.told_seconds(wait) if self.comes_somebody else wait.first_seconds
        elif not has_place:
            limiter, seconds = self.in_tail(limiter, wait, seconds)
        elif self.is_guess(wait):
            seconds = min(seconds, wait.first_seconds)
        latest = self.request.latest_seconds
        if latest is not None and LEAST_ASK_SECONDS < latest < seconds:
            # It asks once more before its deadline, and before that in time for a turn.
            lead = RESERVED_SECONDS + self.limiter.patience.total_seconds()
            seconds = latest - lead if self.settings.tells_turns and latest > lead else latest
        seconds = round(seconds, 3)
        place = replace(self.own, asks_ms=to_ms(self.now) + round(seconds * 1_000))
        places = tuple(place if other is self.own else other for other in kept)
        postponed = SlotPostponed(seconds, wait.reason, ahead=self.ahead())
        return replace(limiter, places=places), postponed

    def in_line(self, limiter: Limiter, *, has_place: bool) -> Limiter:
        """Return the state with the attempt in the line if it has no place; one that is there stays there."""
        line, waiter = limiter.line, self.own.waiter
        if has_place:
            line = limiter.without_waiter(waiter).line
        elif waiter is not None and waiter not in line:
            line = (*line, waiter)
        return replace(limiter, line=line[:KEPT_LINE])

    def told_seconds(self, wait: Wait) -> float:
        """Return after how long an attempt that waits to be told asks by itself."""
        if self.settings.is_rate_alone:
            seconds = wait.seconds + len(self.limiter.line) / self.settings.rate_per_second
            return min(TOLD_TURN_PART * seconds, LONGEST_TOLD_SECONDS)
        line_seconds = len(self.limiter.line) * self.mean_seconds / max(self.settings.max_concurrency, 1)
        if self.settings.tells_turns:
            line_seconds = max(line_seconds, len(self.limiter.line) / self.settings.rate_per_second)
        return min(max(2 * (wait.seconds + line_seconds), LEAST_TOLD_SECONDS), LONGEST_TOLD_SECONDS)

    def kept_until(self, then: datetime) -> tuple[list[Place], list[Place]]:
        """Return the places that are kept, in their order, and those for which there is no room.

        A new attempt has not waited yet, so its priority counts nothing now. Therefore places are compared as
        of the instant at which its turn is expected. If it is the last then, it gets no place while others
        wait without one.
        """
        ordered = [*self.before, self.own, *self.behind]
        by_then = ordered
        if any(place.priority != self.own.priority for place in ordered):
            by_then = (self.limiter.fair or NO_SHARES).in_order(ordered, then)
            by_then.sort(key=lambda place: not place.is_called)  # those are about to ask
        is_last = by_then[-1] is self.own and not self.is_known
        has_room = not (is_last and self.limiter.line and self.comes_somebody)
        kept = kept_within(KEPT_PLACES, by_then if has_room else by_then[:-1], place_bytes)
        left = by_then[len(kept) :]
        return [place for place in ordered if place not in left], left

    @property
    def comes_somebody(self) -> bool:
        """Whether those who wait still come: no slot has been free for long, and no turn is free now."""
        if self.settings.is_rate_alone:
            return self.limiter.next_start(self.now) > self.now
        since = self.limiter.moved_at
        return self.limiter.free <= 0 or (since is not None and self.now < since + self.limiter.patience / 2)

    def is_guess(self, wait: Wait) -> bool:
        """Whether nothing is known of its wait: of those before it, or of how long attempts last."""
        return not self.request.has_waited or (wait.is_for_slot and self.limiter.lasted_seconds is None)

    def in_tail(self, limiter: Limiter, wait: Wait, seconds: float) -> tuple[Limiter, float]:
        """Return after how long an attempt without a place asks again: after the others without one."""
        spacing = timedelta(seconds=wait.tail_seconds)
        if self.is_guess(wait):
            seconds, spacing = min(seconds, wait.first_seconds), min(spacing, FIRST_SPACING)
        if not wait.is_shared:
            fair, behind_seconds = (limiter.fair or NO_SHARES).behind(self.own, self.now, seconds, spacing)
            return replace(limiter, fair=fair), behind_seconds
        tail_at = after_tail(limiter.tail_at, self.now, seconds, spacing)
        return replace(limiter, tail_at=tail_at), (tail_at - self.now).total_seconds()


def give_back(limiter: Limiter, slot: Slot, received_at: datetime) -> Limiter:
    """Free a slot; one that expired, was given back before, or is held by a later request is left alone."""
    limiter, now = limiter.at(received_at)
    if slot.lease_id is None or slot.asked_at is None:
        return limiter
    name = name_of(slot.lease_id)
    lease = limiter.leases.find(name, now)
    if lease is not None:
        if slot.asked_at < lease.asked_at:
            return limiter
        held_seconds = (now - lease.asked_at).total_seconds()
        lasted = limiter.without(lease, now).with_lasted(slot.lasted_seconds, held_seconds)
        limiter = replace(lasted, moved_at=now)
    # A repetition of its request may still come, and must not be granted any more: even if the state after
    # that request was not stored, so that the lease here is that of an earlier request.
    return replace(limiter, answered=with_answered(limiter.answered, name, slot.asked_at, now))


def leave(limiter: Limiter, leaving: Leaving, received_at: datetime) -> Limiter:
    """Remove an attempt from those that wait; if it has started, that start counts for its limit key."""
    limiter, now = limiter.at(received_at)
    name = name_of(leaving.lease_id)
    limiter = replace(limiter, told=without_told(limiter.told, name)).without_waiter(leaving.waiter)
    own = next((place for place in limiter.places if place.is_of(name, leaving.waiter)), None)
    if own is None:
        return limiter
    limiter = replace(limiter, places=tuple(place for place in limiter.places if place is not own))
    return limiter if leaving.is_gone else limiter.charged(own, None, now, now)


def change(limiter: Limiter, limits: ReadLimits, received_at: datetime) -> Limiter:
    """Apply limits that were changed to the attempts that wait, which asked with earlier ones."""
    limiter, _ = limiter.at(received_at)
    settings = None if limiter.settings is None else limiter.settings.with_later(limits)
    return replace(limiter, settings=settings)


def reset(limiter: Limiter) -> tuple[Limiter, tuple[str, ...]]:
    """Forget places and reserved turns, and return the instances to be told, which ask again then.

    The leases of attempts under way stay.
    """
    waiting = (*(place.waiter for place in limiter.places if place.waiter), *limiter.line)
    return Limiter(limiter.clock, limiter.leases, answered=limiter.answered), waiting
