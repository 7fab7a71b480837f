"""What holds of every crowd; a function gives what contradicts it, and nothing when it holds."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import mean
from typing import Final

import httpx

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.base.names import DeadLetterReason, OperationState, Priority
from durable_retry.features.limits.rules.limiter import (
    FIRST_ASK_SECONDS,
    LONGEST_ASK_SECONDS,
    SOONEST_LONGEST_SECONDS,
)
from durable_retry.rules.circuit.retry_budget import PROMISED_SECONDS
from durable_retry.rules.retry.slots import LEASE_MARGIN_SECONDS
from tests.simulation.crowds.answers import (
    asked_ones_act_once,
    handlers_send_once,
    refusals_count_without_their_body,
    refused_credentials_cost_nothing,
    refused_credentials_open_the_circuit,
    renamed_ones_go_on,
    slow_calls_open_the_circuit,
    words_of_a_refusal_count,
)
from tests.simulation.crowds.breaks import (
    breaks_end_with_a_probe,
    open_circuits_are_left_alone,
    stopped_spans,
)
from tests.simulation.crowds.budget import retries_go_when_paid_for, retries_stay_within_the_budget
from tests.simulation.crowds.calls import (
    SEEN_WITHIN,
    UNDER_WAY,
    calls_of,
    end_of,
    is_heard,
    limited_calls,
    time_of,
)
from tests.simulation.crowds.crowd import (
    DEDUPLICATING,
    HEAVY,
    IN_ONE_LINE,
    NEIGHBOUR,
    OF_HANDLER,
    RANKED,
    SPARE,
    WEIGHT,
    WITHOUT_ANSWER,
    Crowd,
    Trouble,
)
from tests.simulation.crowds.steering import (
    bulk_replays_do_what_they_say,
    bulk_replays_stop_for_failures,
    paused_ones_call_nobody,
)
from tests.simulation.crowds.story import CrowdStory, Wave
from tests.simulation.targets import PAUSING, Call
from tests.simulation.world import START

type Invariant = Callable[[CrowdStory], Iterator[str]]

_SECOND: Final = timedelta(seconds=1)
_BURST: Final = 1.25
"""Above the rate by so much in one second: what the workers' shares and the turns that are late add up to."""
_HANDOVER_SECONDS: Final = 0.2
"""From the end of a call until the next may begin on a quick hub: four messages, and a timer."""
_POSTED_SECONDS: Final = 0.4
"""How long a call of a handler at its own dependency takes at most, with a place of the hub."""
_LATE_SECONDS: Final = 3.0
"""Until the workers have heard of each other, and what is last has come."""
_WITHIN: Final = 1.1
_RESTARTED_SECONDS: Final = 90.0
"""A restart, and until what a dead worker had begins again."""
_UNTOUCHED: Final = frozenset({Trouble.NONE, Trouble.CANCELLED})
"""Troubles that leave the rest of a crowd as fast as the limits let it be."""
_LEFT_TO_THEMSELVES: Final = _UNTOUCHED | {Trouble.TERMINATED}
"""Troubles in which the dependency goes on as before for the rest of a crowd."""
_RANKED_SECONDS: Final = 20.0
"""A backlog lasts so long at least where priorities are looked at."""
_RANKED_CALLS: Final = 8
"""Calls of each priority that are left at least: of fewer, as after a cancel, the mean is chance."""
_FREE_FOR: Final = timedelta(seconds=13)
"""By then those who wait find a slot that nobody took, and have come for it."""
_FREE_FOR_BY_RATE: Final = timedelta(seconds=LONGEST_ASK_SECONDS + 3)
"""The same where a rate counts, too: nobody is told then, and all ask by themselves."""
_FREE_FOR_BY_BUDGET: Final = timedelta(seconds=PROMISED_SECONDS + 3)
"""The same where the retry budget counts: what it promised to those that are gone is paid by then."""


def starts_stay_within_the_rate(story: CrowdStory) -> Iterator[str]:
    """In no second do more calls begin than the rate allows.

    Where timers are late by seconds, turns that were reserved one after the other come together.
    """
    rate = story.shape.rate_per_second
    most = int(max(1.0, rate * story.shape.late_turns) * _BURST + 1)
    for dependency in story.shape.limiters if rate else ():
        begins = [call.at for call in limited_calls(story, dependency)]
        in_second = [(bisect_left(begins, at + _SECOND) - first, at) for first, at in enumerate(begins)]
        calls, at = max(in_second, key=lambda calls_at: calls_at[0], default=(0, START))
        if calls > most:
            yield f"{calls} calls began in the second after {time_of(at)}, the rate is {rate}"


def keys_stay_within_their_rate(story: CrowdStory) -> Iterator[str]:
    """In no ten seconds do more calls of one limit key begin than its own rate allows."""
    rate = story.shape.rate_per_key
    by_key = defaultdict[str | None, list[datetime]](list)
    for call in limited_calls(story, story.shape.limited) if rate else ():
        by_key[call.operation.limit_key].append(call.at)
    most = int(rate * (10 + story.shape.late_turns) + 1)
    for limit_key, begins in by_key.items():
        calls = max(bisect_left(begins, at + 10 * _SECOND) - first for first, at in enumerate(begins))
        if limit_key is not None and calls > most:
            yield f"{calls} calls of {limit_key} began in ten seconds, its rate is {rate}"


def calls_stay_within_the_limit(story: CrowdStory) -> Iterator[str]:
    """There are never more calls under way than allowed, neither of all nor of one limit key."""
    for dependency in story.shape.limiters:
        calls = limited_calls(story, dependency)
        yield from _too_many(story, calls, story.shape.max_concurrency)
        by_key = defaultdict[str | None, list[Call]](list)
        for call in calls:
            by_key[call.operation.limit_key].append(call)
        for limit_key, of_key in by_key.items():
            if limit_key is not None:
                yield from _too_many(story, of_key, story.shape.per_key)


def _too_many(story: CrowdStory, calls: Iterable[Call], most: int) -> Iterator[str]:
    changes = [(call.at, 1) for call in calls] + [(end_of(story, call), -1) for call in calls]
    running = 0
    for at, change in sorted(changes):
        running += change
        if most and running > most:
            yield f"{running} calls of {most} were under way at {time_of(at)}"
            return


def pauses_are_kept(story: CrowdStory) -> Iterator[str]:
    """While a dependency has asked for a pause nobody calls it, whatever is done to its circuit.

    Where it asks that of whoever called, the same operation does not.
    """
    calls = story.app.targets[story.shape.limited].calls
    seen_within = SEEN_WITHIN + UNDER_WAY * (not story.shape.is_quick)
    for throttled, since, until in _pauses(story):
        least = until - _SECOND * (not story.shape.is_quick)
        early = [
            call
            for call in calls
            if since + seen_within < call.at < least and _is_asked(story, call, throttled)
        ]
        if early:
            first, asked = time_of(early[0].at), f"{throttled.status} asked for"
            yield f"{len(early)} calls began before {time_of(least)}, which {asked}, the first at {first}"
            return


def _pauses(story: CrowdStory) -> Iterator[tuple[Call, datetime, datetime]]:
    """Give what the dependency asked for: the call that heard of it, and from when until when."""
    for call in story.app.targets[story.shape.limited].calls:
        if call.status != httpx.codes.OK and call.retry_after_seconds and call.ended_at is not None:
            seconds = min(call.retry_after_seconds, call.operation.policy.max_retry_after_seconds)
            yield call, call.ended_at, call.ended_at + timedelta(seconds=seconds)


def _held_up_within(story: CrowdStory, begin: datetime, end: datetime) -> timedelta:
    """Return for how long of a time a pause or the circuit held all calls up."""
    spans = [(since, until) for _, since, until in _pauses(story)]
    spans += [(since, until) for limit_key, since, until in stopped_spans(story) if limit_key is None]
    held_up, at = timedelta(), begin
    for since, until in sorted(spans):
        held_up += max(min(until, end) - max(since, at), timedelta())
        at = max(at, until)
    return held_up


def _is_asked(story: CrowdStory, call: Call, throttled: Call) -> bool:
    """Whether a call is one of those that a refusal asks to wait."""
    one, other = call.operation, throttled.operation
    if throttled.status not in PAUSING:
        return one.operation_id == other.operation_id
    return not story.shape.has_key_circuits or one.limit_key == other.limit_key


def holds_are_kept(story: CrowdStory) -> Iterator[str]:
    """While everything is held no attempt calls that has begun since its circuit has the hold."""
    for name, held_at in story.held_at.items():
        begins = (call.execution.began_at for call in story.app.targets[name].calls)
        early = [at for at in begins if held_at + SEEN_WITHIN < at < story.thawed_at]
        if early:
            yield f"{len(early)} calls of {name} began while it was held, the first at {time_of(min(early))}"


def unsafe_requests_arrive_once(story: CrowdStory) -> Iterator[str]:
    """A request that is not deduplicated reaches the dependency once, or its operation ends ambiguous."""
    arrived = Counter(
        (call.operation.operation_id, target)
        for target in story.app.targets.keys() - DEDUPLICATING
        for call in story.app.targets[target].calls
        if call.effect
    )
    documents = story.documents
    for (operation_id, target), times in arrived.items():
        letter = documents.get(operation_id, {}).get("dead_letter") or {}
        if times > 1 and letter.get("reason") != DeadLetterReason.AMBIGUOUS_OUTCOME:
            yield f"{operation_id} reached {target} {times} times"


def what_waits_is_not_lost(story: CrowdStory) -> Iterator[str]:
    """Each operation is answered with a success once, if no worker dies, however long it was queued.

    What is held and resumed, or replayed, may have a call that its deadline cut short.
    """
    if story.world.deaths or story.shape.trouble in WITHOUT_ANSWER:
        return
    for target in story.app.targets:
        calls = Counter(
            call.operation.operation_id for call in story.app.targets[target].calls if call.effect
        )
        again = {name for name, times in calls.items() if times > 1}
        goes_on = story.shape.is_held or story.replay_id
        cut = {name for name in again if goes_on and story.has_deadline(name)}
        yield from (f"{name} called {target} {calls[name]} times" for name in sorted(again - cut))


def nothing_waits_when_nobody_does(story: CrowdStory) -> Iterator[str]:
    """When all have ended, nothing is lent and nobody waits."""
    for limits in story.limits_left:
        left = {name: limits[name] for name in ("waiting", "lent") if limits[name]}
        if left and not story.unfinished:
            yield f"when the crowd or the newcomers had ended, {left}"


def a_backlog_moves_at_the_limit(story: CrowdStory) -> Iterator[str]:
    """The calls of a backlog, and of those who come when it is over, take what the limits let them take."""
    if not story.shape.is_quick or story.shape.ratio or story.shape.falls_back:
        return
    is_untouched = story.shape.trouble in _UNTOUCHED and not (
        story.shape.has_flood or story.shape.lanes or story.shape.is_held
    )
    waves = [story.newcomers] + [story.crowd] * is_untouched
    for wave in waves:
        calls = calls_of(story, wave)
        if not calls:
            continue
        stopped = _stopped_keys(story, wave)
        last_at = max(
            (call.at for call in calls if call.operation.limit_key not in stopped), default=wave.due_at
        )
        took = (last_at - wave.due_at - _held_up_within(story, wave.due_at, last_at)).total_seconds()
        seconds = mean((end_of(story, call) - call.at).total_seconds() for call in calls)
        expected = story.shape.seconds_for(len(calls), seconds, _HANDOVER_SECONDS)
        if (
            story.shape.dependency == OF_HANDLER
        ):  # Each of them, also one that was cancelled, posted there first.
            expected += len(wave.ids) * _POSTED_SECONDS / (story.shape.workers * story.shape.places)
        late_seconds = _LATE_SECONDS
        if story.shape.trouble is Trouble.CANCELLED or story.shape.deadline_part:
            # Who was told to wait behind others that have ended without a call asks again by then.
            longest = LONGEST_ASK_SECONDS if story.shape.rate_per_second else SOONEST_LONGEST_SECONDS
            late_seconds = FIRST_ASK_SECONDS if wave is story.newcomers else longest
        if took > expected * _WITHIN + late_seconds:
            yield f"{len(calls)} calls took {took:.1f} s, the limits allow {expected:.1f} s"


def _stopped_keys(story: CrowdStory, wave: Wave) -> set[str | None]:
    """Return the limit keys whose circuit holds up those of a wave who are due."""
    return {limit_key for limit_key, _, until in stopped_spans(story) if until > wave.due_at} - {None}


def a_free_slot_is_taken(story: CrowdStory) -> Iterator[str]:
    """While somebody waits no slot is free for long, also where those are gone who were to take it."""
    shape, crowd = story.shape, calls_of(story, story.crowd)
    is_one_line = not (shape.has_flood or shape.per_key or shape.lanes or shape.is_held)
    if not shape.is_quick or not is_one_line or shape.trouble not in _LEFT_TO_THEMSELVES:
        return
    changes = [(call.at, 1) for call in crowd] + [(_slot_ends_at(story, call), -1) for call in crowd]
    changes += _unused_slots(story, {call.operation.operation_id for call in crowd})
    lent, free_since = 0, story.crowd.due_at
    most = _FREE_FOR_BY_BUDGET if shape.ratio else _FREE_FOR_BY_RATE if shape.rate_per_second else _FREE_FOR
    joined_at = story.crowd.due_at + timedelta(seconds=shape.joined_seconds + _LATE_SECONDS)
    for at, change in sorted(changes):
        # Who waits hears of a share's room when a slot of the limiter is given back, which a terminated one
        # does not do.
        is_shared = joined_at < at and shape.trouble is not Trouble.TERMINATED
        at_once = shape.at_once if is_shared else min(shape.pool or shape.at_once, shape.at_once)
        if change > 0 and at > free_since + most and lent < at_once:
            yield f"a slot was free from {time_of(free_since)} to {time_of(at)}"
            return
        if change > 0 or lent >= at_once:
            free_since = at
        lent += change


def _slot_ends_at(story: CrowdStory, call: Call) -> datetime:
    """Return when the slot of a call is free; one that was terminated does not give it back."""
    if story.shape.trouble is Trouble.TERMINATED and call.operation.operation_id in story.taken:
        return call.at + _lease_lasts(story)
    return end_of(story, call)


def _lease_lasts(story: CrowdStory) -> timedelta:
    return timedelta(seconds=story.shape.attempt_seconds + LEASE_MARGIN_SECONDS)


def _unused_slots(story: CrowdStory, called: set[str]) -> Iterator[tuple[datetime, int]]:
    """Give when slots were lent to what was terminated before it called, and when they are free again."""
    if story.shape.trouble is Trouble.TERMINATED:
        for name in story.taken & story.lent.keys() - called:
            yield from ((story.lent[name], 1), (story.lent[name] + _lease_lasts(story), -1))


def urgent_ones_go_first(story: CrowdStory) -> Iterator[str]:
    """In a backlog at the limits those of a higher priority begin earlier, on average of enough of them.

    Where they wait for the places of the hub, too, no priority counts there.
    """
    shape = story.shape
    if shape.keys or not (shape.has_priorities and _is_ranked(shape)):
        return
    places = defaultdict[str, list[int]](list)
    for place, call in enumerate(_calls_in_line(story)):
        places[call.operation.priority or Priority.NORMAL].append(place)
    means = [mean(places[priority]) for priority in Priority if places[priority]]
    if means != sorted(means) and min(map(len, places.values())) >= _RANKED_CALLS:
        yield f"those of high, normal and low priority came after {means} calls on average"


def _is_ranked(shape: Crowd) -> bool:
    """Whether nothing but the limits decides who of a crowd goes first, for long enough."""
    # The last ones are given up where they have deadlines, and the mean of the others is too early.
    is_thinned = shape.is_debounced or shape.deadline_part > 0
    is_one_line = shape.bound in IN_ONE_LINE and not (is_thinned or shape.is_queued)
    is_left_alone = shape.is_quick and shape.trouble in RANKED
    return is_one_line and is_left_alone and shape.drained_seconds > _RANKED_SECONDS


def _calls_in_line(story: CrowdStory) -> list[Call]:
    """Return in order the calls that began when all had come: who came before others waited went at once.

    With each of the first slots came the name of the next, of those that had come by then.
    Their instants say less than their places: none begins while those that were terminated have all slots.
    """
    since = story.crowd.due_at + timedelta(seconds=_LATE_SECONDS)
    begun_later = [call for call in calls_of(story, story.crowd) if call.at > since]
    return begun_later[story.shape.max_concurrency :]


def heavy_keys_go_first(story: CrowdStory) -> Iterator[str]:
    """In a backlog those of a limit key with a weight begin earlier than those of others, on average."""
    shape = story.shape
    if not (shape.is_weighted and _is_ranked(shape)):
        return
    places = defaultdict[str | None, list[int]](list)
    for place, call in enumerate(_calls_in_line(story)):
        places[call.operation.limit_key].append(place)
    means = {limit_key: mean(of_key) for limit_key, of_key in places.items()}
    if (
        means.get(HEAVY, 0.0) > min(means.values(), default=0.0)
        and min(map(len, places.values())) >= _RANKED_CALLS
    ):
        yield f"those of {HEAVY}, which counts {WEIGHT:.0f} times, began last: {means}"


def lanes_run_one_at_a_time(story: CrowdStory) -> Iterator[str]:
    """From the first call of a run to the end of its last one nobody else of its order key calls.

    A replay comes behind those that wait when it begins.
    """
    lanes = defaultdict[str, list[tuple[datetime, datetime, str]]](list)
    calls = defaultdict[str, list[Call]](list)
    for call in calls_of(story, story.crowd) if story.shape.lanes else ():
        if call.operation.operation_id not in story.taken | story.tried:
            calls[call.operation.owner].append(call)
    for owner, of_run in calls.items():
        lane = of_run[0].operation.order_key or ""
        lanes[lane].append((of_run[0].at, max(end_of(story, call) for call in of_run), owner))
    for lane, runs in lanes.items():
        for (_, ended_at, name), (begun_at, _, other) in pairwise(sorted(runs)):
            if begun_at < ended_at:
                yield f"{other} began in {lane} at {time_of(begun_at)}, when {name} had not ended"


def held_ones_are_not_given_up(story: CrowdStory) -> Iterator[str]:
    """What is to be held when it has no time left, and is resumed, is not given up for that."""
    for name in story.crowd.ids if story.shape.is_held else ():
        letter = story.documents.get(name, {}).get("dead_letter") or {}
        if letter.get("reason") == DeadLetterReason.DEADLINE_EXCEEDED:
            yield f"{name} was given up: {letter['detail']}"


def accepted_ones_end_with_their_work(story: CrowdStory) -> Iterator[str]:
    """What is accepted with 202 succeeds when its work has ended, and not before."""
    jobs = story.app.targets[story.shape.limited].jobs
    for name, document in story.documents.items():
        job = jobs.get(document.get("key", ""))
        if job is None or document["status"] != OperationState.SUCCEEDED:
            continue
        ended_at = from_rfc3339(document["updated_at"])
        if ended_at < job.ends_at:
            yield f"{name} ended at {time_of(ended_at)}, its work at {time_of(job.ends_at)}"


def nobody_is_accepted_while_open(story: CrowdStory) -> Iterator[str]:
    """Who comes while a circuit is held open which refuses is answered 503."""
    accepted = [status for status in story.late_answers if status != httpx.codes.SERVICE_UNAVAILABLE]
    if accepted:
        yield f"{len(accepted)} that came while the circuit was held open were answered {accepted}"


def nothing_begins_after_its_deadline(story: CrowdStory) -> Iterator[str]:
    """No call begins after the deadline of its operation, if the hub has a place for it and no worker dies.

    The first one is made all the same where nobody could make it before, for want of a place.
    """
    if story.shape.late_turns > 1.0 or story.shape.is_restarted:
        return
    late = _SECOND * (1.0 + story.shape.call_seconds[1])
    for call in calls_of(story, story.crowd):
        deadline = call.operation.deadline_at
        is_owed = story.shape.is_queued and call.execution.given["is_owed"]
        if deadline is not None and call.at > deadline + late and not is_owed:
            name, called, latest = call.operation.operation_id, time_of(call.at), time_of(deadline)
            yield f"{name} called at {called}, its deadline was {latest}"


def neighbours_go_on(story: CrowdStory) -> Iterator[str]:
    """Who calls another dependency waits for the places of the hub at most."""
    documents, begin = story.documents, story.neighbours.due_at
    ends = [from_rfc3339(documents[name]["updated_at"]) for name in story.neighbours.ids if name in documents]
    if len(ends) < len(story.neighbours.ids):
        yield "a neighbour has not ended"
        return
    took, shape = (max(ends) - begin).total_seconds(), story.shape
    queued = len(story.crowd.ids) * shape.place_seconds / (shape.workers * shape.places)
    if took > queued * _WITHIN + _RESTARTED_SECONDS and not shape.has_flood:
        yield f"the neighbours took {took:.1f} s, all of the queue takes {queued:.1f} s"


def what_was_answered_is_not_dead(story: CrowdStory) -> Iterator[str]:
    """Nothing is a dead letter that the dependency answered with 200, while somebody heard it."""
    documents = story.documents
    for target in (story.shape.dependency, SPARE, NEIGHBOUR):
        for call in story.app.targets[target].calls:
            letter = documents.get(call.operation.operation_id, {}).get("dead_letter")
            if letter is not None and is_heard(call, story) and target != OF_HANDLER:
                yield f"{call.operation.operation_id} was answered 200 and is a dead letter: {letter}"


def everything_ends_well(story: CrowdStory) -> Iterator[str]:
    """What nobody took away or replaced succeeds.

    What may be sent once only may end ambiguous when that is in doubt. A deadline may be too soon.
    """
    yield from (f"{name} has not ended" for name in story.unfinished)
    documents, rejected = story.documents, story.rejected
    for name in (*story.crowd.ids, *story.neighbours.ids, *story.newcomers.ids):
        if name in story.taken or name in story.unfinished or name in rejected:
            continue
        document = documents.get(name, {"status": None, "dead_letter": None})
        status, letter = document["status"], document["dead_letter"] or {}
        is_ambiguous = letter.get("reason") == DeadLetterReason.AMBIGUOUS_OUTCOME
        is_late = letter.get("reason") == DeadLetterReason.DEADLINE_EXCEEDED
        if document.get("replaced_by") in story.crowd.ids:
            continue
        # What is given up at its deadline may be in doubt, too.
        if story.has_deadline(name) and (is_late or is_ambiguous):
            continue
        if status != OperationState.SUCCEEDED and not (is_ambiguous and story.shape.may_be_in_doubt):
            yield f"{name} ended as {status}: {letter}"


def nothing_unexpected(story: CrowdStory) -> Iterator[str]:
    """Nothing was seen that must never be seen."""
    yield from story.world.mistakes


CROWD_INVARIANTS: Final[tuple[Invariant, ...]] = (
    starts_stay_within_the_rate,
    keys_stay_within_their_rate,
    calls_stay_within_the_limit,
    pauses_are_kept,
    holds_are_kept,
    unsafe_requests_arrive_once,
    what_waits_is_not_lost,
    nothing_waits_when_nobody_does,
    a_backlog_moves_at_the_limit,
    a_free_slot_is_taken,
    urgent_ones_go_first,
    heavy_keys_go_first,
    lanes_run_one_at_a_time,
    held_ones_are_not_given_up,
    accepted_ones_end_with_their_work,
    nobody_is_accepted_while_open,
    nothing_begins_after_its_deadline,
    retries_stay_within_the_budget,
    retries_go_when_paid_for,
    neighbours_go_on,
    what_was_answered_is_not_dead,
    everything_ends_well,
    open_circuits_are_left_alone,
    breaks_end_with_a_probe,
    slow_calls_open_the_circuit,
    refused_credentials_open_the_circuit,
    refused_credentials_cost_nothing,
    refusals_count_without_their_body,
    asked_ones_act_once,
    words_of_a_refusal_count,
    renamed_ones_go_on,
    handlers_send_once,
    paused_ones_call_nobody,
    bulk_replays_do_what_they_say,
    bulk_replays_stop_for_failures,
    nothing_unexpected,
)


def broken_in(story: CrowdStory) -> dict[str, list[str]]:
    """Return what contradicts each invariant that does not hold."""
    found = {invariant.__name__: list(invariant(story)) for invariant in CROWD_INVARIANTS}
    return {name: contradictions for name, contradictions in found.items() if contradictions}
