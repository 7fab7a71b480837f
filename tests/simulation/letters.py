"""What holds of dead letters."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta
from typing import Final

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.base.names import DeadLetterReason
from durable_retry.hub.entity_ids import dependency_of
from durable_retry.rules.dead_letters.record import KeptDeadLetter, Status
from durable_retry_console.bulk.names import BULK_ACTION
from durable_retry_console.bulk.replay import RECOVERY
from durable_retry_console.bulk.shapes import BulkState
from tests.simulation.outcomes import saga_and_step, saga_of
from tests.simulation.people import Stop
from tests.simulation.story import RunEnd, Story

_RECOVERABLE: Final = frozenset({DeadLetterReason.RETRIES_EXHAUSTED, DeadLetterReason.DEADLINE_EXCEEDED})
_AT_MOST: Final = 2
_CLOSED_FOR: Final = timedelta(seconds=60)
"""As the recoveries of `app.DEPENDENCIES` have them."""


def dead_letters_are_kept(story: Story) -> Iterator[str]:
    """Every dead-lettered run has one dead letter, in its line; the last one of an operation is open.

    Those of a life before are put away when the next one begins, and those of a saga when it is restarted.
    """
    kept = {letter.id: letter for letter in story.letters}
    named = Counter(
        end.document["dead_letter"]["id"] for end in story.ends if end.document["dead_letter"] is not None
    )
    yield from (f"{name} is named by {times} ends" for name, times in named.items() if times > 1)
    yield from (f"{name} is missing" for name in named if name not in kept)
    of_runs = (
        letter
        for letter in story.letters
        if letter.operation is not None and letter.reason is not DeadLetterReason.OUTBOX_UNDELIVERABLE
    )
    yield from (f"{letter.id} of {letter.key} is of no end" for letter in of_runs if letter.id not in named)
    sagas = story.people.sagas.items()
    known = story.app.hub.instances
    restarted = {number for saga_id, number in sagas if saga_id in known and saga_of(story, saga_id).restarts}
    for end in story.last_ends:
        if saga_and_step(end.operation)[0] in restarted:
            continue
        kept_as = Status.OPEN if end.life == len(story.world.lives) else Status.ARCHIVED
        open_letters = [letter.id for letter in _letters_of(story, end) if letter.status is kept_as]
        wanted = [end.document["dead_letter"]["id"]] if end.document["dead_letter"] is not None else []
        if open_letters != wanted:
            yield f"{end.operation.operation_id} ended {end.document['status']}, open are {open_letters}"


def lineage_is_recorded(story: Story) -> Iterator[str]:
    """Who replays a dead letter and fails again is written down at it, and it was replayed."""
    kept = {letter.id: letter for letter in story.letters}
    for letter in story.letters:
        if letter.replay_of is None:
            continue
        parent = kept.get(letter.replay_of)
        if parent is None or parent.status is not Status.REPLAYED:
            yield f"{letter.id} replays {letter.replay_of}, which was not replayed"
        elif parent.replays[-1].dead_letter_id != letter.id:
            yield f"{parent.id} does not show that its replay became {letter.id}"


def stops_are_kept(story: Story) -> Iterator[str]:
    """A bulk replay stops since something failed again, and starts nothing more before it is resumed.

    A recovery may replay what it left.
    """
    recovered = {each.id for each in story.letters if any(replay.by == RECOVERY for replay in each.replays)}
    yield from broken_stops(story.people.stops, recovered)


def broken_stops(stops: Iterable[Stop], recovered: Collection[str] = ()) -> Iterator[str]:
    """Return what contradicts that stopped replays leave what they have not started, but for some."""
    for stop in stops:
        shown, later = stop.stopped, stop.later
        if not shown["failed_again"] or not shown["reason"]:
            yield f"{shown['action_id']} stopped for nothing: {shown['reason']}"
        if later["status"] != BulkState.STOPPED or later["started"] != shown["started"]:
            yield f"{shown['action_id']} was {later['status']} with {later['started']} after its stop"
        if moved := sorted((stop.left - stop.still_open).difference(recovered)):
            yield f"{shown['action_id']} had stopped, and {moved} are open no more"


def recoveries_are_due(story: Story) -> Iterator[str]:
    """A recovery replays what an outage left, not too often, once the circuit has been closed for so long."""
    times = Counter[tuple[str | None, int]]()
    for letter in story.letters:
        for replay in (each for each in letter.replays if each.by == RECOVERY):
            times[letter.operation_id, story.world.life_at(replay.requested_at)] += 1
            if letter.reason not in _RECOVERABLE:
                yield f"{letter.id} was replayed by the recovery: {letter.reason}"
    yield from (f"{name} was recovered {count} times" for name, count in times.items() if count > _AT_MOST)
    for action in (each for each in story.app.hub.instances.values() if each.name == BULK_ACTION):
        given, slack = json.loads(action.input), 2 * story.world.clock_difference
        wanted = given.get("filter", {})
        circuit = wanted.get("dependency"), wanted.get("limit_key")
        for (name, _), (limit_key, since, until) in story.circuits.breaks.items():
            is_its_own = given.get("by") == RECOVERY and (dependency_of(name), limit_key) == circuit
            if is_its_own and since < action.created_at < until + _CLOSED_FOR - slack:
                yield f"{action.instance_id} began at {action.created_at}, a break of {name} ended at {until}"


def messages_are_kept(story: Story) -> Iterator[str]:
    """A message that is no operation is exactly one open dead letter."""
    kept = Counter(letter.key for letter in story.letters if letter.message is not None)
    for message in sorted(story.people.malformed):
        if kept[message] != 1:
            yield f"the message {message} has {kept[message]} dead letters"


def lists_agree(story: Story) -> Iterator[str]:
    """The list and the counts of open dead letters say what the dead letters say."""
    open_letters = {letter.id for letter in story.letters if letter.status is Status.OPEN}
    if sorted(open_letters) != sorted(story.open_ids):
        yield f"open but not listed, or listed twice: {open_letters.symmetric_difference(story.open_ids)}"
    assert story.summary is not None
    if story.summary.open != len(open_letters):
        yield f"{story.summary.open} are counted, {len(open_letters)} are open"


def _letters_of(story: Story, end: RunEnd) -> list[KeptDeadLetter]:
    return [
        letter
        for letter in story.letters
        if letter.operation_id == end.operation.operation_id
        and letter.operation is not None
        and story.world.life_at(from_rfc3339(letter.operation["created_at"])) == end.life
        and letter.reason is not DeadLetterReason.OUTBOX_UNDELIVERABLE
    ]
