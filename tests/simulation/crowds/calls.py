"""The calls of a crowd, as its dependencies saw them."""

from datetime import datetime, timedelta
from typing import Final

import httpx

from tests.simulation.crowds.story import CrowdStory, Wave
from tests.simulation.targets import Call
from tests.simulation.world import START

SEEN_WITHIN: Final = timedelta(seconds=3)
"""By then every worker acts on what a circuit has, and what it let through before has called."""
UNDER_WAY: Final = timedelta(seconds=5)
"""How long a message is on its way to the circuit where a hub is not quick."""


def limited_calls(story: CrowdStory, dependency: str) -> list[Call]:
    calls = story.app.targets[dependency].calls
    free_from, free_until = story.unlimited or (START, START)
    seen_at = free_until + SEEN_WITHIN * (free_from < free_until)
    return [
        call
        for call in calls
        if call.operation.operation_id not in story.tried and not free_from <= call.at < seen_at
    ]


def calls_of(story: CrowdStory, wave: Wave, target: str = "") -> list[Call]:
    names = set(wave.ids)
    calls = story.app.targets[target or story.shape.limited].calls
    return [call for call in calls if call.operation.operation_id in names]


def end_of(story: CrowdStory, call: Call) -> datetime:
    """Return when a call was over for this side: refused, answered, given up, or its worker was dead."""
    if not call.arrived:
        return call.at
    begun = (call.at - START).total_seconds()
    died = (START + timedelta(seconds=at) for at in story.world.deaths if at >= begun)
    longest = call.at + timedelta(seconds=story.shape.attempt_seconds)
    return min([call.ended_at or longest, call.execution.ended_at or longest, *died])


def is_heard(call: Call, story: CrowdStory) -> bool:
    """Whether a call was answered with 200, and its worker lived to return that."""
    ended_at = call.execution.ended_at
    if call.status != httpx.codes.OK or ended_at is None:
        return False
    return not any(call.at <= START + timedelta(seconds=at) <= ended_at for at in story.world.deaths)


def time_of(instant: datetime) -> str:
    return f"{(instant - START).total_seconds():.3f} s"
