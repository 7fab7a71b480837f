"""What holds of a crowd that somebody steers as a whole."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import timedelta
from operator import attrgetter
from typing import Final

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.base.names import OperationState
from durable_retry_console.bulk.shapes import BatchPace, BulkState
from tests.simulation.crowds.calls import time_of
from tests.simulation.crowds.story import CrowdStory
from tests.simulation.letters import broken_stops
from tests.simulation.messages import Instance
from tests.simulation.world import START

_SECONDS: Final = 10
"""The time in which the replays of a bulk action are counted."""
_LATEST: Final = 20
"""So many of the last that ended decide whether a bulk replay stops."""


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
    """A bulk replay starts what it matched at its rate at most, and says what became of it.

    One that has stopped may be cancelled, and starts nothing more then.
    """
    shown = story.replayed
    if not shown:
        return
    starts = sorted(each.created_at for each in _replays(story))
    left = shown["remaining"]
    is_whole = shown["status"] == BulkState.COMPLETED and not left
    is_given_up = shown["status"] == BulkState.CANCELLED and bool(story.people.stops)
    is_over = (is_whole or is_given_up) and not shown["under_way"]
    # A dead letter is there before its operation has ended, for seconds where a hub is not quick.
    running = 0 if story.shape.is_quick else sum("is running" in each["detail"] for each in shown["failures"])
    # A replay has its deadline again, and may miss it.
    ended = shown["succeeded"] + shown["failed_again"] * (story.shape.deadline_part > 0)
    if not is_over or {shown["matched"] - left - running, shown["started"], ended} != {len(starts)}:
        yield f"{len(starts)} were replayed, and the bulk action says {shown}"
    rate = shown["rate_per_second"]
    most = int(rate * _SECONDS) + BatchPace.of(rate).batch
    for first, at in enumerate(starts):
        started = bisect_left(starts, at + timedelta(seconds=_SECONDS)) - first
        if started > most:
            yield f"{started} replays were started in {_SECONDS} s from {time_of(at)}, the rate is {rate}"
            return


def bulk_replays_stop_for_failures(story: CrowdStory) -> Iterator[str]:
    """A bulk replay stops where too many of the last that ended failed again, and leaves the others open.

    Those count that it has started since it was resumed last.
    """
    yield from broken_stops(story.people.stops)
    succeeded = {
        name
        for name, document in story.documents.items()
        if document.get("status") == OperationState.SUCCEEDED
    }
    since, late = START, timedelta(seconds=story.shape.late_seconds)
    for shown in (stop.stopped for stop in story.people.stops):
        stopped_at = from_rfc3339(shown["stopped_at"])
        replays = sorted(_replays(story), key=attrgetter("updated_at"))
        ends = [each for each in replays if since < each.created_at < stopped_at]
        # When it looked is not seen, and neither when it heard of each end.
        least, most = (
            bisect_right(ends, stopped_at + slack, key=attrgetter("updated_at")) for slack in (-late, late)
        )
        failed = [each.instance_id not in succeeded for each in ends]
        seen = (failed[max(0, count - _LATEST) : count] for count in range(max(1, least), most + 1))
        if not any(sum(each) > shown["stop_at_failed"] * len(each) for each in seen):
            yield f"it stopped at {time_of(stopped_at)} after {failed}: {shown['reason']}"
        since = stopped_at


def _replays(story: CrowdStory) -> list[Instance]:
    return [each for each in story.app.hub.instances.values() if each.runs > 1]
