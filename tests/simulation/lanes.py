"""Watches every operation of order lanes, and says what holds of the operations that are in them."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

from durable_retry.base.names import OperationState
from durable_retry.features.order.names import JOIN, ORDER_LANE, RELEASE, TAKE
from durable_retry.features.order.rules.lane import lane_of_state
from durable_retry.features.order.rules.members import blocks_its_order
from tests.simulation.entities import Operated
from tests.simulation.targets import Call
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.story import RunEnd, Story


@dataclass
class LaneWatch:
    """What was seen of lanes, by order key and life.

    Attributes:
        joined: Operations, in the order of the places that their lane gave them.
        forgotten: Lanes of which an answer went out and the state was not stored.
        released: Dead letters that a lane was told to go on behind, and when, by operation.
    """

    world: World
    joined: dict[tuple[str, int], list[str]] = field(default_factory=lambda: defaultdict(list))
    forgotten: set[tuple[str, int]] = field(default_factory=set)
    released: dict[str, list[tuple[str, datetime]]] = field(default_factory=lambda: defaultdict(list))
    _states: dict[str, Any] = field(default_factory=dict)

    def changed(self, operated: Operated) -> None:
        if operated.name != ORDER_LANE:
            return
        lane = operated.given["order_key"], len(self.world.lives)
        if self._states.get(operated.key) != operated.before:
            self.forgotten.add(lane)
        self._states[operated.key] = operated.after
        name, joined = operated.given["operation_id"], self.joined[lane]
        queue = [place.operation_id for place in lane_of_state("", operated.after).places()]
        if operated.operation in {JOIN, TAKE} and name in queue and name not in joined:
            behind = (joined.index(each) for each in queue[queue.index(name) :] if each in joined)
            joined.insert(min(behind, default=len(joined)), name)
        if operated.operation == RELEASE and lane_of_state("", operated.before).dead_letters.get(name):
            self.released[name].append((operated.given["dead_letter_id"], self.world.now()))


@dataclass(frozen=True)
class Held:
    """A run of an operation that has made an attempt, as its lane should see it."""

    end: "RunEnd"
    since: datetime

    @property
    def name(self) -> str:
        return self.end.operation.operation_id


def lanes_run_one_at_a_time(story: "Story") -> Iterator[str]:
    """One operation of an order key runs at a time, from its first attempt to its end."""
    for lane, runs in _lanes(story).items():
        for before, later in combinations(sorted(runs, key=lambda each: each.since), 2):
            if before.name != later.name and later.since < before.end.ended_at:
                ran = f"{before.name} ran until {before.end.ended_at}"
                yield f"{later.name} began in {lane} at {later.since}, {ran}"


def lanes_keep_the_order(story: "Story") -> Iterator[str]:
    """What was submitted after another was accepted does not begin before it."""
    submitted = story.people.in_order
    for lane, runs in _lanes(story).items():
        first = {each.name: each.since for each in runs if each.end.operation.replay_of is None}
        known = [name for name in first if (name, lane[1]) in submitted]
        for before, later in permutations(known, 2):
            is_after = submitted[before, lane[1]][1] < submitted[later, lane[1]][0]
            if is_after and first[later] < first[before]:
                yield f"{later} began in {lane} at {first[later]}, before {before} at {first[before]}"


def dead_letters_block_lanes(story: "Story") -> Iterator[str]:
    """Behind a dead letter nothing begins until it was replayed to its end, or put away."""
    ends = defaultdict(list)
    for end in story.ends:
        ends[end.operation.operation_id, end.life].append(end)
    for lane, runs in _lanes(story).items():
        joined = story.lanes.joined[lane]
        for name in joined:
            for since, until in _blocked(story, ends[name, lane[1]]):
                behind = joined[joined.index(name) + 1 :]
                for run in runs:
                    is_meant = run.name in behind and run.end.operation.replay_of is None
                    if is_meant and since < run.since and (until is None or run.since < until):
                        blocks = f"behind {name}, which blocks since {since}"
                        yield f"{run.name} began in {lane} at {run.since}, {blocks}"


def lanes_go_on_for_a_reason(story: "Story") -> Iterator[str]:
    """A lane goes on behind a dead letter only when that was put away; at rest only open ones are in it."""
    people = story.people
    for name, letters in story.lanes.released.items():
        for letter_id, at in letters:
            all_put_away = people.all_put_away_at is not None and at >= people.all_put_away_at
            if letter_id not in people.put_away and not all_put_away:
                yield f"the lane of {name} went on behind {letter_id}, which nobody put away"
    yield from story.left_in_lanes


def _blocked(story: "Story", ends: list["RunEnd"]) -> Iterator[tuple[datetime, datetime | None]]:
    """Give when an operation blocked its lane: from its end until that of its next run, or until put away."""
    for end, following in zip(ends, [*ends[1:], None], strict=True):
        is_dead = end.document["status"] == OperationState.DEAD_LETTERED
        if not is_dead or not blocks_its_order(end.operation) or end.is_repeated:
            continue
        released, letter_id = (
            story.lanes.released[end.operation.operation_id],
            end.document["dead_letter"]["id"],
        )
        if any(at < end.started_at for _, at in released):
            continue  # What was archived has no place any more: its replay joined at the end.
        ats = [at for found, at in released if found == letter_id]
        # Archived before the operation had ended, as its last turn came late.
        ats += [at for found, at in story.people.put_away.items() if found == letter_id]
        ats += [] if following is None else [following.ended_at]
        yield end.ended_at, min(ats, default=None)


def _lanes(story: "Story") -> dict[tuple[str, int], list[Held]]:
    """Return the runs of each lane that remembers all."""
    began: dict[tuple[str, datetime], datetime] = {}
    for target in story.app.targets.values():
        for call in target.calls:
            if call.execution.counts:
                run = _run(call)
                began[run] = min(call.at, began.get(run, call.at))
    lanes = defaultdict(list)
    for end in story.ends:
        lane, run = (
            (end.operation.order_key or "", end.life),
            (end.operation.run_id, end.operation.created_at),
        )
        if lane[0] and lane not in story.lanes.forgotten and run in began and not end.is_repeated:
            lanes[lane].append(Held(end, began[run]))
    return lanes


def _run(call: Call) -> tuple[str, datetime]:
    return call.operation.run_id, call.operation.created_at
