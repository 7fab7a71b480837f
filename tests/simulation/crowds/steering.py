"""What holds of a crowd that somebody steers as a whole."""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from durable_retry_console.bulk.shapes import BatchPace, BulkState
from tests.simulation.crowds.calls import time_of
from tests.simulation.crowds.story import CrowdStory

_SECONDS: Final = 10
"""The time in which the replays of a bulk action are counted."""


def paused_ones_call_nobody(story: CrowdStory) -> Iterator[str]:
    """Once an operation shows that it is paused no attempt of it begins before somebody resumes it."""
    for target in story.app.targets.values():
        for call in target.calls:
            name, began_at = call.operation.operation_id, call.execution.began_at
            since, until = story.paused.get(name, (began_at, began_at))
            if since < began_at < until:
                seen = f"it was seen paused at {time_of(since)}, and resumed after {time_of(until)}"
                yield f"{name} began an attempt at {time_of(began_at)}, {seen}"


def bulk_replays_do_what_they_say(story: CrowdStory) -> Iterator[str]:
    """A bulk replay starts what it matched at its rate at most, and says what became of it."""
    shown = story.replayed
    if not shown:
        return
    starts = sorted(each.created_at for each in story.app.hub.instances.values() if each.runs > 1)
    is_over = shown["status"] == BulkState.COMPLETED and not (shown["remaining"] or shown["under_way"])
    # A dead letter is there before its operation has ended, for seconds where a hub is not quick.
    running = 0 if story.shape.is_quick else sum("is running" in each["detail"] for each in shown["failures"])
    # A replay has its deadline again, and may miss it.
    ended = shown["succeeded"] + shown["failed_again"] * (story.shape.deadline_part > 0)
    if not is_over or {shown["matched"] - running, shown["started"], ended} != {len(starts)}:
        yield f"{len(starts)} were replayed, and the bulk action says {shown}"
    rate = shown["rate_per_second"]
    most = int(rate * _SECONDS) + BatchPace.of(rate).batch
    for first, at in enumerate(starts):
        started = bisect_left(starts, at + timedelta(seconds=_SECONDS)) - first
        if started > most:
            yield f"{started} replays were started in {_SECONDS} s from {time_of(at)}, the rate is {rate}"
            return
