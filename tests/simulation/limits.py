"""What holds of the limits of dependencies."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from durable_retry.rules.config.dependency import Bounds
from durable_retry.rules.retry.admission import AdmissionState
from tests.simulation.app import CONFIG
from tests.simulation.slots import Asked
from tests.simulation.story import Story
from tests.simulation.targets import Call
from tests.simulation.world import Execution


def slots_are_given_back(story: Story) -> Iterator[str]:
    """A slot is lent to one request at a time, and given back by the attempt that had it; none at rest."""
    yield from story.slots.overlent
    yield from story.slots.lent_again
    yield from story.slots.withheld
    yield from story.slots_left
    for execution in story.app.hub.attempts:
        slot = _slot_in(execution)
        if slot is not None and slot not in story.slots.leases:
            yield f"{slot} was not lent, so giving it back frees nothing"
        if slot is not None and execution.counts and slot not in story.slots.returned:
            yield f"{slot} was not given back"


def the_oldest_goes_first(story: Story) -> Iterator[str]:
    """Nobody passes those who wait, go before it and are about to ask.

    First goes the limit key that had the least, of it who has waited for the longest, where no key has a
    weight. One that asks when it was told to goes, too, and so does whoever asks for what nobody took.
    A turn that is made again may say by another clock since when its attempt waits.
    """
    repeated = {end.operation.operation_id for end in story.ends if end.is_repeated}
    for grant in story.slots.granted:
        older = [name for name in grant.older if re.split("[.:]", name)[0] not in repeated]
        if older and len(older) >= grant.room:
            yield f"{grant.name} got a slot of {grant.key} before {older}"


def attempts_are_within_limits(story: Story) -> Iterator[str]:
    """No more attempts are under way at once than their dependency's limit, while their leases last.

    A lease ends by the clock of the process that looks at it, which may be ahead of the one that gave it.
    """
    for target in story.app.targets:
        limit = (CONFIG.dependencies[target].bounds or Bounds()).max_concurrency
        changes: list[tuple[datetime, int, str]] = []
        for call, until in _lent_calls(story, target):
            longest = timedelta(seconds=call.operation.timeouts.attempt_seconds)
            ended_at = call.ended_at or call.at + longest
            changes += [(call.at, 1, call.operation.run_id), (min(ended_at, until), -1, "")]
        running = 0
        for at, change, run_id in sorted(changes):
            running += change
            if limit and change > 0 and running > limit:
                yield f"{run_id} began as number {running} of {limit} at {target} at {at}"


def _slot_in(execution: Execution) -> Asked | None:
    """Return the slot that an attempt has of its limiter; None when it has none."""
    slot = AdmissionState.from_json(execution.given.get("admission") or {}).slot
    if slot is None or slot.lease_id is None or slot.asked_at is None:
        return None
    return slot.lease_id, slot.asked_at


def _lent_calls(story: Story, target: str) -> Iterator[tuple[Call, datetime]]:
    """Give each attempt's call that arrived with a slot of the limiter, and when its lease ended."""
    for call in story.app.targets[target].calls:
        slot = _slot_in(call.execution)
        if slot is None or slot in story.slots.forgotten or not call.arrived or not call.execution.counts:
            continue
        until = story.slots.leases[slot] - story.world.clock_difference
        if call.at < until:
            yield call, until
