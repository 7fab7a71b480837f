"""What holds of the breaks of a crowd's circuits: nobody calls in one, and somebody probes after it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from durable_retry.features.limits.rules.limiter import LONGEST_ASK_SECONDS
from durable_retry.hub.entity_ids import dependency_of
from tests.simulation.crowds.calls import SEEN_WITHIN, UNDER_WAY, end_of, time_of
from tests.simulation.crowds.crowd import Bound
from tests.simulation.crowds.story import CrowdStory
from tests.simulation.targets import Call

type Break = tuple[str | None, datetime, datetime]
"""The limit key whose circuit it is, None for that of all; from when until when it was open."""

_ASKED_AGAIN: Final = timedelta(seconds=LONGEST_ASK_SECONDS)
"""By then a probe that needs a slot asks for it again."""


def breaks_of(story: CrowdStory) -> Iterator[Break]:
    """Give the breaks of the limited dependency."""
    for (key, _), of_circuit in story.circuits.breaks.items():
        if dependency_of(key) in {story.shape.limited, story.shape.renamed}:
            yield of_circuit


def calls_in(story: CrowdStory, limit_key: str | None) -> list[Call]:
    """Return the calls that a circuit lets through, of a limit key or all."""
    calls = story.app.targets[story.shape.limited].calls
    return [call for call in calls if limit_key in {None, call.operation.limit_key}]


def stopped_spans(story: CrowdStory) -> Iterator[Break]:
    """Give from when until when a circuit let nobody through: its breaks, and the probe after each."""
    for limit_key, since, until in breaks_of(story):
        yield limit_key, since, until
        for call in calls_in(story, limit_key):
            if call.at >= until:
                yield limit_key, call.at, end_of(story, call)
                break


def open_circuits_are_left_alone(story: CrowdStory) -> Iterator[str]:
    """While a circuit is open no attempt begins, of any worker, but what somebody sends past it."""
    seen_within = SEEN_WITHIN + UNDER_WAY * (not story.shape.is_quick)
    for limit_key, since, until in breaks_of(story):
        begins = (
            call.execution.began_at
            for call in calls_in(story, limit_key)
            if call.operation.operation_id not in story.tried
        )
        early = [at for at in begins if since + seen_within < at < until]
        if early:
            its, first = "" if limit_key is None else f" of {limit_key}", time_of(min(early))
            yield f"{len(early)} calls{its} began from {first}, the circuit was open since {time_of(since)}"


def breaks_end_with_a_probe(story: CrowdStory) -> Iterator[str]:
    """Soon after a break somebody of the crowd probes, if anybody of it still waits.

    Where the hub has few places the others may fill them, and what is held or asked about comes later. Where
    messages are slow, or a rate bounds all keys, a probe of a limit key waits long in line for its slot.
    """
    shape = story.shape
    is_late = shape.bound is Bound.NONE or shape.is_full or shape.is_held or shape.is_asked
    is_slow = shape.rate_per_second > 0 or not shape.is_quick
    is_in_line = shape.max_concurrency > 0 and shape.has_key_circuits and is_slow
    if is_late or is_in_line or shape.is_restarted or story.replay_id:
        return
    within = SEEN_WITHIN + UNDER_WAY * (not shape.is_quick) + _ASKED_AGAIN
    within += timedelta(seconds=shape.call_seconds[1])
    crowd = set(story.crowd.ids) - story.tried
    for limit_key, _, until in breaks_of(story):
        begins = [
            call.at
            for call in calls_in(story, limit_key)
            if call.operation.operation_id in crowd and call.at >= until
        ]
        if begins and begins[0] > until + within:
            its, over = "" if limit_key is None else f" of {limit_key}", time_of(until)
            yield f"the circuit{its} was probed at {time_of(begins[0])}, its break was over at {over}"
